package mongocatalog

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// A product is a server with MongoDB's protocol that is not MongoDB. This package recognizes a
// product by its replies or its host names, unless a tunnel hides both.
type product struct {
	name  string
	hosts []string // suffixes of host names, as in MongoDB's drivers (DRIVERS-2583)
	why   string   // the reason why the product is not supported
}

var (
	amazonDocumentDB = &product{
		name:  "Amazon DocumentDB",
		hosts: []string{".docdb.amazonaws.com", ".docdb-elastic.amazonaws.com"},
		why: "its storage, read concerns and failover are not MongoDB's, and the guarantees that " +
			"locks rely on were never checked there",
	}
	cosmosDB = &product{
		name: "Azure Cosmos DB for MongoDB", hosts: []string{".cosmos.azure.com", ".documents.azure.com"},
		why: "two of its regions may acknowledge conflicting writes and undo one of them later, so " +
			"two processes would hold one lock",
	}
	vCore = &product{
		name:  "DocumentDB on PostgreSQL (Azure Cosmos DB for MongoDB vCore, Azure DocumentDB)",
		hosts: []string{".mongocluster.cosmos.azure.com"},
		why: "it answers like a mongos but is not one, and the guarantees of MongoDB that locks rely " +
			"on were never checked there",
	}
	// products lists the known products. A product with a longer host suffix comes first, because
	// productAt returns the first match.
	products = []*product{vCore, amazonDocumentDB, cosmosDB}
)

func refusal(name, why string) error {
	return fmt.Errorf("%s is not supported: %s; use MongoDB 4.4 or newer", name, why)
}

// productOf returns the product that sent the replies to buildInfo and hello. For MongoDB and
// FerretDB it returns nil.
//
// Cosmos DB marks its replies with a field _t. DocumentDB on PostgreSQL, for example in Azure,
// reports its versions in the field "internal" of hello. Amazon DocumentDB lists its hosts in
// hello, like every replica set.
func productOf(info, hello bson.Raw) *product {
	for _, versions := range []string{"documentdb_versions", "cosmos_versions"} {
		if hello.Lookup("internal", versions).Type != 0 {
			return vCore
		}
	}
	hosts := []string{text(hello, "me"), text(hello, "primary")}
	for _, field := range []string{"hosts", "passives"} {
		list, _ := hello.Lookup(field).ArrayOK()
		values, _ := list.Values()
		for _, v := range values {
			host, _ := v.StringValueOK()
			hosts = append(hosts, host)
		}
	}
	if p := productAt(hosts); p != nil {
		return p
	}
	if info.Lookup("_t").Type != 0 || hello.Lookup("_t").Type != 0 {
		return cosmosDB
	}
	return nil
}

// productAt returns the product to which one of the hosts belongs, or nil. A host may have a port.
func productAt(hosts []string) *product {
	for _, p := range products {
		for _, end := range p.hosts {
			if slices.ContainsFunc(hosts, func(host string) bool { return hostEnds(host, end) }) {
				return p
			}
		}
	}
	return nil
}

func hostEnds(host, end string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.HasSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), end)
}

// supportedHosts returns an error if a host belongs to an unsupported product. It does no I/O.
func supportedHosts(hosts []string) error {
	if p := productAt(hosts); p != nil {
		return refusal(p.name, p.why)
	}
	return nil
}

// hostsOf returns the hosts of a connection string. For mongodb+srv, it returns the DNS name.
func hostsOf(uri string) []string {
	_, rest, _ := strings.Cut(uri, "://")
	rest = rest[strings.LastIndex(rest, "@")+1:]
	rest, _, _ = strings.Cut(rest, "?")
	rest, _, _ = strings.Cut(rest, "/")
	return strings.Split(rest, ",")
}

// supportedProduct returns an error if the product or the version of a server other than MongoDB is
// not supported. For MongoDB it returns nil, and [Supported] checks the version.
func supportedProduct(s catalog.Server) error {
	for _, p := range products {
		if s.Product == p.name {
			return refusal(p.name, p.why)
		}
	}
	major, _ := version(s.Version)
	switch {
	case s.Kind != catalog.FerretDB || s.Front:
		return nil
	case major < 2:
		return fmt.Errorf("FerretDB %s is not supported: its conditional updates are not "+
			"atomic, so two processes would hold one lock; use MongoDB 4.4 or newer, or "+
			"the embedded server of package configserver, which serializes its writes",
			catalog.Printable(s.Version, 40))
	}
	return refusal("FerretDB "+catalog.Printable(s.Version, 40), "its engine is DocumentDB on "+
		"PostgreSQL, and the guarantees of MongoDB that locks rely on were never checked there")
}

// text returns a string field, or "".
func text(d bson.Raw, field string) string {
	s, _ := d.Lookup(field).StringValueOK()
	return s
}
