package mongocatalog

import (
	"errors"
	"net/url"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Dial makes a client from a copy of opts and, if it is not empty, a connection string. pool bounds
// its connections; 0 leaves that to opts. It does not wait for the server.
//
// Errors say what is wrong with the options or the connection string and never contain the user
// information of the latter.
func Dial(opts *options.ClientOptions, uri string, pool uint64) (*mongo.Client, error) {
	own := *opts
	if uri != "" {
		own.ApplyURI(uri)
	}
	if own.AppName == nil {
		own.SetAppName("mongodlm")
	}
	if pool > 0 {
		own.SetMaxPoolSize(pool).SetMinPoolSize(0)
	}
	client, err := mongo.Connect(&own)
	if err != nil {
		return nil, errors.New("bad connection string or options: " + withoutSecrets(err.Error(), uri))
	}
	return client, nil
}

// withoutSecrets removes the user information of uri from a text, in every form in which an error
// may repeat it.
func withoutSecrets(text, uri string) string {
	_, rest, found := strings.Cut(uri, "://")
	if !found {
		rest = uri
	}
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return text
	}
	info := rest[:at]
	user, password, _ := strings.Cut(info, ":")
	secrets := []string{info, password, user}
	for _, s := range []string{password, user} {
		if plain, err := url.QueryUnescape(s); err == nil {
			secrets = append(secrets, plain)
		}
		if plain, err := url.PathUnescape(s); err == nil {
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
