package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"mongodlm/cmd/internal/census"
)

// A filter selects and sorts the locks of a listing. The web page has the same filters and orders.
type filter struct {
	held, waited, silent bool
	order                string
}

func (v *filter) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.held, "held", false, "only locks that are held")
	f.BoolVar(&v.waited, "waited", false, "only locks with waiters")
	f.BoolVar(&v.silent, "silent", false, "only locks with a holder that is silent or declared "+
		"dead, whose ping\nis missing or cannot be understood, or whose lease ran out")
	f.StringVar(&v.order, "sort", census.Orders[0].Name, "the `order`: trouble (dead holders, then "+
		"long queues, each by\nwaiters, then the rest by name), name, held, ping or queue")
}

func (v *filter) accept() error {
	var names []string
	for _, o := range census.Orders {
		names = append(names, o.Name)
	}
	if !slices.Contains(names, v.order) {
		return fmt.Errorf("--sort is %q, must be one of %s", v.order, strings.Join(names, ", "))
	}
	return nil
}

// apply returns the selected locks in the requested order.
func (v *filter) apply(all []*census.Lock) []*census.Lock {
	selected := slices.DeleteFunc(slices.Clone(all), func(l *census.Lock) bool {
		return v.held && !l.Held() || v.waited && len(l.Queue) == 0 || v.silent && l.Trouble() < 2
	})
	for _, o := range census.Orders {
		if o.Name == v.order {
			o.Sort(selected)
		}
	}
	return selected
}
