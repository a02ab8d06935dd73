// Package ui is the page: who holds which lock and who waits, live, in a browser. Its look and its
// flow follow River UI and the web UI of Temporal; what it tells follows pg_locks and
// pg_stat_activity.
//
// It is read-only unless Config.AllowBreak is set. It asks the server once an interval for all
// browsers together, and nothing while nobody looks. What it keeps is bounded: the limits are
// constants of this package.
//
// All pages are made here and work without the script, which only puts what an event stream brings
// in place of what is there. Every text of a lock is foreign: package words makes it printable,
// html/template escapes it, and the content-security policy allows neither script nor style in the
// page.
package ui
