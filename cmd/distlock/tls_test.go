package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/role"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/internal/test/mongodtest"
)

type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	der, key := a.make("the authority", true)
	a.key = key
	cert := assert.Value(x509.ParseCertificate(der))(t)
	a.cert = cert
	a.write("ca.pem", pemOf("CERTIFICATE", der))
	return a
}

// make signs a certificate. The first certificate of an authority is self-signed.
func (a *authority) make(name string, ca bool) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key := assert.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{
			// Each name has a separate organization, because a mongod treats a client of its own
			// organization as a cluster member.
			CommonName: name, Organization: []string{"house of " + name},
		},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ca, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	assert.Must(a.t, err)
	return der, key
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (a *authority) write(name string, text []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	assert.Must(a.t, os.WriteFile(path, text, 0o600))
	return path
}

// pair writes a certificate and its key into one file, as drivers require.
func (a *authority) pair(name string) (path string) {
	a.t.Helper()
	der, key := a.make(name, false)
	private := assert.Value(x509.MarshalPKCS8PrivateKey(key))(a.t)
	return a.write(name+".pem", append(pemOf("CERTIFICATE", der), pemOf("PRIVATE KEY", private)...))
}

// keyFile returns the connection string option for a certificate and its key.
func keyFile(path string) string { return "tlsCertificateKeyFile=" + url.QueryEscape(path) }

// With TLS options in the connection string, "distlock locks", "distlock doctor" and "distlock run"
// reach a server that requires a certificate. The user is the subject of the certificate and has no
// password.
func TestX509_RealServer_UserIsTheSubject(t *testing.T) {
	a := newAuthority(t)
	ca := filepath.Join(a.dir, "ca.pem")
	d, root, _ := guarded(t,
		mongodtest.Options{TLS: &mongodtest.TLS{Authority: ca, Server: a.pair("server")}})
	asAdmin(t, root, role.Command(roleName, defaultDatabase,
		role.Of("", role.Locks, role.History, role.Listings)))
	least := bsontest.D("createUser", "CN=operator,O=house of operator",
		"roles", bson.A{bsontest.D("role", roleName, "db", "admin")})
	assert.Must(t, root.Database("$external").RunCommand(t.Context(), least).Err())
	at := func(key string) string {
		return "mongodb://" + d.Addr(0) + "/?directConnection=true&tls=true&tlsCAFile=" +
			url.QueryEscape(ca) + "&" + keyFile(key) + "&authMechanism=MONGODB-X509&authSource=$external"
	}
	uri := at(a.pair("operator"))
	cli(t, append([]string{"run", "job", "--uri", uri, "--"}, self(t, "env", "0")...)...).want(t, 0)
	cli(t, "locks", "--uri", uri).want(t, 0, "job", "free")
	cli(t, "doctor", "--uri", uri, "--features", "locks,history,listings").want(t, exitWarned,
		"verdict: fit", "races were not run")
	cli(t, "locks", "--uri", at(a.pair("stranger"))).want(t, exitFailed)
}
