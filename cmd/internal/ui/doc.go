// Package ui serves a live page with the holders and waiters of locks for a browser. Its design
// follows River UI and the web UI of Temporal. Its contents follow pg_locks and pg_stat_activity.
//
// The page is read-only if Config.AllowBreak is not set. It queries the server once per interval
// for all browsers together, and only while a page is open. The constants of this package bound its
// memory.
//
// The server renders all pages. They work without the script, which only replaces parts of the page
// by the contents of an event stream. Every string of a lock may come from a foreign program.
// Package words makes it printable, and html/template escapes it. The content-security policy
// allows neither script nor style in the page.
package ui
