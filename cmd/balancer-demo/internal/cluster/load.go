package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// errExport is what to do about a text that is no export.
var errExport = errors.New("export it again with mongoexport, with or without --jsonArray")

// Load reads the metadata of a cluster from what mongoexport writes for config.shards,
// config.collections and config.chunks, one after the other in any order: documents in extended
// JSON, canonical or relaxed, one per line, over several lines (--pretty) or in an array
// (--jsonArray).
//
// The documents are checked one by one and as a whole (Parse). An error names the source and the
// line in which the document begins, and wraps a *catalog.MalformedError where a document is
// understood and wrong.
func Load(name string, source io.Reader) (Cluster, error) {
	name = catalog.Printable(name, 200)
	text, err := io.ReadAll(source)
	if err != nil {
		return Cluster{}, fmt.Errorf("load %s: %w", name, err)
	}
	var c Cluster
	if line, err := c.read(bytes.TrimPrefix(text, []byte("\ufeff"))); err != nil {
		return Cluster{}, fmt.Errorf("load %s:%d: %w", name, line, err)
	}
	missing := ""
	switch {
	case len(c.Shards) == 0:
		missing = ShardsCollection
	case len(c.Collections) == 0:
		missing = CollectionsCollection
	case len(c.Chunks) == 0:
		missing = ChunksCollection
	}
	if missing != "" {
		return Cluster{}, fmt.Errorf("load %s: there is no document of config.%s; export it too: "+
			"mongoexport -d config -c %[2]s", name, missing)
	}
	if c, err = Assemble(c); err != nil {
		return Cluster{}, fmt.Errorf("load %s: %w", name, err)
	}
	return c, nil
}

// read appends the documents of a text. An error comes with the line of the document.
func (c *Cluster) read(text []byte) (line int, err error) {
	documents := json.NewDecoder(bytes.NewReader(text))
	for array := false; ; {
		rest := bytes.TrimLeft(text[documents.InputOffset():], " \t\r\n")
		line = 1 + bytes.Count(text[:len(text)-len(rest)], []byte("\n"))
		switch {
		case len(rest) == 0 && !array:
			return 0, nil
		case !array && rest[0] == '[', array && !documents.More():
			if _, err := documents.Token(); err != nil {
				return line, fmt.Errorf("the array is not closed with ] (%w); %w", err, errExport)
			}
			array = !array
			continue
		}
		var document json.RawMessage
		if err := documents.Decode(&document); err != nil {
			return line, fmt.Errorf("not a document in JSON, or cut off (%w); %w", err, errExport)
		}
		raw, err := parseJSON(document)
		if err != nil {
			return line, err
		}
		if err := c.add(raw); err != nil {
			return line, err
		}
	}
}

// parseJSON understands one document of extended JSON, canonical or relaxed.
func parseJSON(text []byte) (bson.Raw, error) {
	var raw bson.Raw
	err := bson.UnmarshalExtJSON(text, false, &raw)
	if err == nil {
		err = raw.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("not a document in extended JSON: %s; %w",
			catalog.Printable(err.Error(), 200), errExport)
	}
	return raw, nil
}
