package configserver

import (
	"bytes"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// frontField is a field in the reply to buildInfo. It distinguishes the front from a bare FerretDB.
const frontField = "mongodlmFront"

// A request is a client's message and the parsed fields that the front needs.
type request struct {
	frame    frame // as the backend receives it: no checksum, no flags
	command  string
	database string // the database of a write, in lower case
	write    bool
	// silent is set when the client asked for no reply (moreToCome).
	silent bool
}

// parseRequest parses a client's message. After an error the caller must close the connection.
//
// parseRequest clears the flags of the message. Without the flag moreToCome, the backend also
// replies to an unacknowledged write, so the front knows when the write is complete. Checksums and
// exhaust replies are optional in the protocol, so their flags are cleared too.
func parseRequest(f frame) (request, error) {
	var r request
	var document bson.Raw
	var sequences int
	switch f.opCode() {
	case opMsg:
		stripped, flags, err := stripFlags(f)
		if err != nil {
			return request{}, err
		}
		r.frame, r.silent = stripped, flags&flagMoreToCome != 0
		if document, sequences, err = parseMsg(stripped); err != nil {
			return request{}, err
		}
	case opQuery:
		var err error
		if document, err = parseQuery(f); err != nil {
			return request{}, err
		}
		r.frame = f
	default:
		// No client uses OP_COMPRESSED, because the reply to hello offers no compressor.
		return request{}, damaged("opcode %d is not supported", f.opCode())
	}
	first, err := document.IndexErr(0)
	if err != nil {
		return request{}, damaged("command document: %v", err)
	}
	r.command = first.Key() // the first key is the name
	r.database = databaseOf(r.command, document)
	r.write = !isRead(r.command) &&
		(r.command != "aggregate" || sequences > 0 || mayWrite(document))
	return r, nil
}

// databaseOf returns the database that a command may write to. The name is in lower case, because
// some file systems ignore case. The command renameCollection is sent to admin, but its value names
// the database.
func databaseOf(command string, document bson.Raw) string {
	name, _ := document.Lookup("$db").StringValueOK()
	if command == "renameCollection" {
		from, _ := document.Lookup(command).StringValueOK()
		name, _, _ = strings.Cut(from, ".")
	}
	return strings.ToLower(name)
}

// isRead reports whether a command is known to change no document. The front treats every other
// command as a write.
func isRead(command string) bool {
	switch command {
	case "hello", "isMaster", "ismaster", "ping", "buildInfo", "buildinfo", "connectionStatus",
		"saslStart", "saslContinue", "logout", "whatsmyuri", "endSessions":
		return true
	case "find", "getMore", "killCursors", "count", "distinct", "explain",
		"listCollections", "listDatabases", "listIndexes", "listCommands":
		return true
	case "collStats", "dataSize", "dbStats", "dbstats", "serverStatus", "hostInfo", "currentOp",
		"getCmdLineOpts", "getLog", "getParameter", "getFreeMonitoringStatus":
		return true
	}
	return false
}

// mayWrite reports whether an aggregate command may have a stage that writes. The bytes of a stage
// contain its name and a zero byte. If a value contains the same bytes, the command also counts as
// a write.
func mayWrite(aggregate bson.Raw) bool {
	return bytes.Contains(aggregate, []byte("$out\x00")) ||
		bytes.Contains(aggregate, []byte("$merge\x00"))
}

// markFront adds frontField to the reply to buildInfo. FerretDB sets no flags in its replies.
func markFront(reply frame) (frame, error) {
	document, _, err := parseMsg(reply)
	if err != nil {
		return nil, err
	}
	var info bson.D
	if err := bson.Unmarshal(document, &info); err != nil {
		return nil, damaged("reply to buildInfo: %v", err)
	}
	document, err = bson.Marshal(append(info, bson.E{Key: frontField, Value: true}))
	if err != nil {
		return nil, err
	}
	return newMsg(reply.requestID(), reply.responseTo(), document), nil
}
