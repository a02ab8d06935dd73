package transition

import "mongodlm/catalog"

func (t GrantNext) On() string    { return t.Name }
func (t RequestYield) On() string { return t.Name }
func (c Condemn) On() string      { return c.Process }
func (c Witness) On() string      { return c.Watched.Process }
func (c RemovePing) On() string   { return c.Process }

func (t Enter) Op() catalog.Op {
	if t.How == catalog.TryPlain {
		return catalog.OpAcquire
	}
	return catalog.OpEnter
}

func (Leave) Op() catalog.Op        { return catalog.OpLeave }
func (Evict) Op() catalog.Op        { return catalog.OpEvict }
func (GrantNext) Op() catalog.Op    { return catalog.OpGrantNext }
func (Confirm) Op() catalog.Op      { return catalog.OpConfirm }
func (SeedFence) Op() catalog.Op    { return catalog.OpSeedFence }
func (Renew) Op() catalog.Op        { return catalog.OpRenew }
func (PutFirst) Op() catalog.Op     { return catalog.OpPutFirst }
func (RequestYield) Op() catalog.Op { return catalog.OpRequestYield }
func (Break) Op() catalog.Op        { return catalog.OpBreak }
func (Condemn) Op() catalog.Op      { return catalog.OpCondemn }
func (Witness) Op() catalog.Op      { return catalog.OpWitness }
func (RemovePing) Op() catalog.Op   { return catalog.OpRemovePing }
