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

// Dial makes a client from a copy of opts and, if it is not empty, a connection string. pool bounds
// its connections; 0 leaves that to opts. purpose, if it is not empty, follows the application name.
// The client sends a command that an overloaded server refuses once, whatever opts say. Dial does
// not wait for the server.
//
// Errors say what is wrong with the options or the connection string, or that their hosts are no
// MongoDB's, and never contain the user information of the latter; [catalog.ErrUnavailable] when
// the DNS does not tell the hosts of a mongodb+srv.
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
		if errors.As(err, &lookup) { // of mongodb+srv, whose hosts stand in the DNS
			return nil, fmt.Errorf("%w: %s", catalog.ErrUnavailable, text)
		}
		return nil, errors.New(text)
	}
	return client, nil
}

// appName is the application name by which the server knows a client: that of the application, or
// mongodlm, and the purpose of the client if the server accepts a name of that length.
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

// ambiguous refuses a connection string whose password has an unescaped slash: what follows it
// would be taken for a host and shown, and looked up, as one.
func ambiguous(uri string) error {
	_, rest, _ := strings.Cut(uri, "://")
	authority, after, _ := strings.Cut(rest, "/")
	options := strings.IndexByte(after, '?')
	if options >= 0 {
		after = after[:options]
	}
	if strings.Contains(after, "@") && !strings.Contains(authority, "?") {
		return errors.New("bad connection string: an @ after the first slash: write / as %2F and @ as " +
			"%40 in user name and password")
	}
	return nil
}

// WithoutSecrets removes the user information of uri from a text, in every form in which an error
// may repeat it.
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
	_, password, _ := strings.Cut(info, ":")
	secrets := []string{info, password}
	if plain, err := url.QueryUnescape(password); err == nil {
		secrets = append(secrets, plain)
	}
	if plain, err := url.PathUnescape(password); err == nil {
		secrets = append(secrets, plain)
	}
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "xxx")
		}
	}
	return text
}
