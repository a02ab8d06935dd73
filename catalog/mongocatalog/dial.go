package mongocatalog

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// Dial creates a client from a copy of opts and the connection string uri. The argument pool is the
// largest number of connections. If pool is 0, opts or uri determines this number. Dial appends
// purpose to the application name. The strings uri and purpose may be empty. The client never
// resends a command that an overloaded server refused, even if opts allows that. Dial does not wait
// for the server.
//
// Dial returns an error if the options or the connection string are invalid, or if a host belongs
// to an unsupported product. If a DNS query for mongodb+srv fails, the error matches
// [catalog.ErrUnavailable]. No error contains the password in uri.
func Dial(
	opts *options.ClientOptions, uri string, pool uint64, purpose string,
) (*mongo.Client, error) {
	if err := ambiguous(uri); err != nil {
		return nil, err
	}
	if err := supportedHosts(hostsOf(uri)); err != nil {
		return nil, err
	}
	own := *opts
	if uri != "" {
		own.ApplyURI(uri)
	}
	if err := supportedHosts(own.Hosts); err != nil {
		return nil, err
	}
	own.SetAppName(appName(own.AppName, purpose)).SetMaxAdaptiveRetries(0)
	if pool > 0 {
		own.SetMaxPoolSize(pool).SetMinPoolSize(0)
	}
	client, err := mongo.Connect(&own)
	if err != nil {
		text := "bad connection string or options: " + WithoutSecrets(err.Error(), uri)
		var lookup *net.DNSError
		if errors.As(err, &lookup) { // the hosts of mongodb+srv are in the DNS
			return nil, fmt.Errorf("%w: %s", catalog.ErrUnavailable, text)
		}
		return nil, errors.New(text)
	}
	return client, nil
}

// appName adds the purpose to a client's application name, unless the result is longer than the
// server allows. The default name is mongodlm.
func appName(given *string, purpose string) string {
	name := "mongodlm"
	if given != nil {
		name = *given
	}
	if full := name + " " + purpose; purpose != "" && len(full) <= 128 {
		return full
	}
	return name
}

// ambiguous returns an error for a connection string with an unescaped slash in its password. The
// driver would use a part of the password as a host name, and would show that name in its errors.
func ambiguous(uri string) error {
	_, rest, _ := strings.Cut(uri, "://")
	authority, after, _ := strings.Cut(rest, "/")
	after, _, _ = strings.Cut(after, "?")
	if strings.Contains(after, "@") && !strings.Contains(authority, "?") {
		return errors.New("bad connection string: an @ after the first slash: write / as %2F and @ as " +
			"%40 in user name and password")
	}
	return nil
}

// WithoutSecrets removes the password in the connection string uri, escaped or unescaped, from a
// text. It removes the user name only where the text contains it together with the password.
func WithoutSecrets(text, uri string) string {
	_, rest, found := strings.Cut(uri, "://")
	if !found {
		rest = uri
	}
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return text
	}
	info := rest[:at]
	_, password, has := strings.Cut(info, ":")
	if !has {
		return text
	}
	secrets := []string{info, password}
	for _, unescape := range []func(string) (string, error){url.QueryUnescape, url.PathUnescape} {
		if plain, err := unescape(password); err == nil {
			secrets = append(secrets, plain)
		}
	}
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "xxx")
		}
	}
	return text
}
