package claim

import (
	"fmt"
	"strconv"
	"strings"
)

// reason is why a process holds a slot, as the lock tells it. It says what of the configuration others
// need to count the rows as the queue does.
func (c Config) reason() string {
	text := claiming
	if c.Due != "" {
		text += fmt.Sprintf(dueBy+"%q", c.Due)
	}
	if c.Key != "" {
		text += fmt.Sprintf(keyedBy+"%q", c.Key)
	}
	return text
}

const (
	claiming = "claims rows"
	dueBy    = ", due by "
	keyedBy  = ", in chains by "
)

// ConfigOf reads Due and Key of a queue from the reason that its processes give for the locks which are
// their slots, [distlock.LockInfo].Why: with these others count its rows as it does, see [Count] and
// [Odd]. Zero for another text.
func ConfigOf(why string) (c Config) {
	rest, is := strings.CutPrefix(why, claiming)
	if !is {
		return c
	}
	read := func(what string) (name string) {
		if after, is := strings.CutPrefix(rest, what); is {
			if quoted, err := strconv.QuotedPrefix(after); err == nil {
				name, _ = strconv.Unquote(quoted)
				rest = after[len(quoted):]
			}
		}
		return name
	}
	c.Due = read(dueBy)
	c.Key = read(keyedBy)
	return c
}
