package mongocatalog

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// The products that have MongoDB's protocol, but are not MongoDB.
const (
	amazonDocumentDB = "Amazon DocumentDB"
	cosmosDB         = "Azure Cosmos DB for MongoDB"
	vCore            = "DocumentDB on PostgreSQL (Azure Cosmos DB for MongoDB vCore, Azure DocumentDB)"
)

// productHosts lists the suffixes of the products' host names, as in MongoDB's drivers
// (DRIVERS-2583). A longer suffix comes first, because productAt returns the first match.
var productHosts = []struct{ suffix, product string }{
	{".mongocluster.cosmos.azure.com", vCore},
	{".docdb.amazonaws.com", amazonDocumentDB},
	{".docdb-elastic.amazonaws.com", amazonDocumentDB},
	{".cosmos.azure.com", cosmosDB},
	{".documents.azure.com", cosmosDB},
}

// refusal returns an error for a product. Two regions of Cosmos DB may even acknowledge conflicting
// writes, and undo one of them later.
func refusal(product string) error {
	return fmt.Errorf("%s is not supported: the guarantees of MongoDB that locks rely on were never "+
		"checked there; use MongoDB 4.4 or newer", product)
}

// productOf returns the product that sent the replies to buildInfo and hello, or "". It recognizes
// a product by its replies or its host names, unless a tunnel hides both.
//
// Cosmos DB marks its replies with a field _t. DocumentDB on PostgreSQL, for example in Azure,
// reports its versions in the field "internal" of hello. Amazon DocumentDB lists its hosts in
// hello, like every replica set.
func productOf(info, hello bson.Raw) string {
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
	product := productAt(hosts)
	if product == "" && (info.Lookup("_t").Type != 0 || hello.Lookup("_t").Type != 0) {
		return cosmosDB
	}
	return product
}

// productAt returns the product to which one of the hosts belongs, or "". A host may have a port.
func productAt(hosts []string) string {
	for _, p := range productHosts {
		if slices.ContainsFunc(hosts, func(host string) bool { return hostEnds(host, p.suffix) }) {
			return p.product
		}
	}
	return ""
}

func hostEnds(host, end string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.HasSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), end)
}

// supportedHosts returns an error if a host belongs to an unsupported product. It does no I/O.
func supportedHosts(hosts []string) error {
	if product := productAt(hosts); product != "" {
		return refusal(product)
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
	if s.Product != "" {
		return refusal(s.Product)
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
	return refusal("FerretDB " + catalog.Printable(s.Version, 40))
}

// text returns a string field, or "".
func text(d bson.Raw, field string) string {
	s, _ := d.Lookup(field).StringValueOK()
	return s
}
