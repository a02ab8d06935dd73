package transition

import "mongodlm/catalog"

// This file has the methods Op and On. The transitions of a session inherit On from
// [catalog.Session].

// On implements [catalog.Transition].
func (t GrantNext) On() string { return t.Name }

// On implements [catalog.Transition].
func (t RequestYield) On() string { return t.Name }

// Op implements [catalog.Transition].
func (t Enter) Op() catalog.Op {
	if t.How == catalog.TryPlain {
		return catalog.OpAcquire
	}
	return catalog.OpEnter
}

// Op implements [catalog.Transition].
func (Leave) Op() catalog.Op { return catalog.OpLeave }

// Op implements [catalog.Transition].
func (Evict) Op() catalog.Op { return catalog.OpEvict }

// Op implements [catalog.Transition].
func (GrantNext) Op() catalog.Op { return catalog.OpGrantNext }

// Op implements [catalog.Transition].
func (Confirm) Op() catalog.Op { return catalog.OpConfirm }

// Op implements [catalog.Transition].
func (SeedFence) Op() catalog.Op { return catalog.OpSeedFence }

// Op implements [catalog.Transition].
func (Renew) Op() catalog.Op { return catalog.OpRenew }

// Op implements [catalog.Transition].
func (PutFirst) Op() catalog.Op { return catalog.OpPutFirst }

// Op implements [catalog.Transition].
func (RequestYield) Op() catalog.Op { return catalog.OpRequestYield }

// Op implements [catalog.Transition].
func (Break) Op() catalog.Op { return catalog.OpBreak }

// Op implements [catalog.PingChange].
func (Condemn) Op() catalog.Op { return catalog.OpCondemn }

// Op implements [catalog.PingChange].
func (Witness) Op() catalog.Op { return catalog.OpWitness }

// Op implements [catalog.PingChange].
func (RemovePing) Op() catalog.Op { return catalog.OpRemovePing }
