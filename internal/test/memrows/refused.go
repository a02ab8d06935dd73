package memrows

import "mongodlm/internal/rows"

// Refuse makes the store refuse to change rows for which this returns an error; nil: none.
func (m *Memory) Refuse(refuses func(rows.Row) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuses = refuses
}

// refusesOne reports whether a row is refused, and notes it.
func (m *Memory) refusesOne(r *record, refused *rows.RefusedError) bool {
	if m.refuses == nil {
		return false
	}
	err := m.refuses(r.Row)
	if err != nil {
		refused.Rows = append(refused.Rows, rows.Refused{ID: r.ID, Err: err})
	}
	return err != nil
}

func orNil(e *rows.RefusedError) error {
	if len(e.Rows) == 0 {
		return nil
	}
	return e
}
