// Package view draws what the balancer demo shows: a live table for a terminal, one line per
// event for everything else, and the report at the end. It is pure: what it draws is a function
// of the state it is given. It reads no clock, writes nowhere, and knows no terminal; the only
// control sequences it makes are those of Frame.
//
// Texts that come from a database or another process (names of shards and namespaces, process
// ids, reasons, evidence) are escaped by catalog.Printable before they are drawn, so that none of
// them can move the cursor or break the table.
package view
