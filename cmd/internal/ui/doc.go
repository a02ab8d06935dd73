// Package ui serves a live web page that shows the holders and waiters of locks. The design follows
// River UI and the web UI of Temporal. The contents follow the PostgreSQL views pg_locks and
// pg_stat_activity.
//
// The page is read-only unless Config.AllowBreak is set. The package reads the locks once per
// interval for all browsers together, and only while a browser shows the page. Constants of this
// package limit its memory.
//
// The pages work without JavaScript. With JavaScript, a script replaces parts of a page with
// updates from an event stream. Every string of a lock may come from a foreign program. Package
// words makes it printable, and html/template escapes it. The content security policy forbids
// inline scripts and inline styles.
package ui
