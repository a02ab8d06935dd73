// Package ui serves the page: the holders and waiters of locks, live, in a browser. Its design
// follows River UI and the web UI of Temporal; its contents follow pg_locks and pg_stat_activity.
//
// The page is read-only unless Config.AllowBreak is set. It queries the server once per interval
// for all browsers together, and never without an open page. Its memory is bounded by the constants
// of this package.
//
// The server renders all pages. They work without the script, which only replaces parts of the page
// by the contents of an event stream. Every text of a lock is foreign: package words makes it
// printable, html/template escapes it, and the content-security policy allows neither script nor
// style in the page.
// page.
package ui
