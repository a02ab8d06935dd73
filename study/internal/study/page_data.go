package study

import (
	"slices"
	"strconv"
	"time"
)

// documentData is what the page knows of the documents of a play: for each the stretches in which
// it stood or changed evenly, as a ping does.
type documentData struct {
	Lock  []stretch            `json:"l"`
	Pings map[string][]stretch `json:"p"`
	Names []string             `json:"w,omitempty"`
	Sent  [][7]any             `json:"m,omitempty"` // the messages of the decisive seconds
}

// A stretch is N versions of a document, Step milliseconds apart. Set are the fields that differ
// from the stretch before; those in Times go on by Step from version to version, those in Counts by
// one.
type stretch struct {
	At     int64       `json:"a"`
	Step   int64       `json:"s,omitempty"`
	N      int         `json:"n,omitempty"`
	Set    [][2]string `json:"f,omitempty"`
	Unset  []string    `json:"x,omitempty"`
	Gone   bool        `json:"g,omitempty"`
	Times  []string    `json:"t,omitempty"`
	Counts []string    `json:"i,omitempty"`
}

func (p Play) documentData() documentData {
	d := documentData{Lock: []stretch{}, Pings: map[string][]stretch{}, Sent: p.messageData()}
	for _, q := range p.Processes {
		d.Names = append(d.Names, q.Name)
	}
	versions := map[string][]Version{}
	for _, v := range p.Versions {
		if v.Collection == pings {
			versions[v.ID] = append(versions[v.ID], v)
		} else if v.ID == lockName {
			versions[""] = append(versions[""], v)
		}
	}
	for id, all := range versions {
		if id == "" {
			d.Lock = stretches(all)
		} else {
			d.Pings[id] = stretches(all)
		}
	}
	return d
}

// stretches puts versions together.
func stretches(all []Version) (found []stretch) {
	var before []Field
	for i := 0; i < len(all); {
		v := all[i]
		s := stretch{At: milliseconds(v.At), Gone: len(v.Fields) == 0}
		s.Set, s.Unset = difference(before, v.Fields)
		n := 1
		if i+1 < len(all) {
			s.Step = milliseconds(all[i+1].At) - s.At
			s.Times, s.Counts, _ = even(v.Fields, all[i+1].Fields, s.Step)
		}
		for i+n < len(all) && milliseconds(all[i+n].At)-milliseconds(all[i+n-1].At) == s.Step {
			times, counts, ok := even(all[i+n-1].Fields, all[i+n].Fields, s.Step)
			if !ok || !slices.Equal(times, s.Times) || !slices.Equal(counts, s.Counts) {
				break
			}
			n++
		}
		if s.N = n; n == 1 {
			s.Step, s.N, s.Times, s.Counts = 0, 0, nil, nil
		}
		before = all[i+n-1].Fields
		i += n
		found = append(found, s)
	}
	return found
}

func difference(before, now []Field) (set [][2]string, unset []string) {
	for _, f := range now {
		if !slices.Contains(before, f) {
			set = append(set, [2]string{f.Name, f.Value})
		}
	}
	for _, f := range before {
		if !slices.ContainsFunc(now, func(o Field) bool { return o.Name == f.Name }) {
			unset = append(unset, f.Name)
		}
	}
	return set, unset
}

// even reports whether a document has changed evenly: times of day by step, numbers by one.
func even(before, now []Field, step int64) (times, counts []string, ok bool) {
	if len(before) != len(now) || len(now) == 0 {
		return nil, nil, false
	}
	for i, f := range now {
		was := before[i]
		t, bad := time.Parse("15:04:05.000", f.Value)
		u, worse := time.Parse("15:04:05.000", was.Value)
		a, wrong := strconv.ParseInt(f.Value, 10, 64)
		b, also := strconv.ParseInt(was.Value, 10, 64)
		switch {
		case was == f:
		case was.Name != f.Name:
			return nil, nil, false
		case bad == nil && worse == nil && milliseconds(t.Sub(u)) == step:
			times = append(times, f.Name)
		case wrong == nil && also == nil && a == b+1:
			counts = append(counts, f.Name)
		default:
			return nil, nil, false
		}
	}
	return times, counts, true
}
