package catalog

import "context"

// transactionUnder is the key under which a context names the transaction under a lock.
type transactionUnder struct{ Session }

// WithTransaction returns a context that carries tx, the store's own, as the transaction under the
// lock that s holds. A store gives it to what [Transactions.Transact] runs.
func WithTransaction(ctx context.Context, s Session, tx any) context.Context {
	return context.WithValue(ctx, transactionUnder{s}, tx)
}

// TransactionUnder returns the transaction under the lock that s holds, of which a command with
// this context is a part; nil when it is one of none.
func TransactionUnder(ctx context.Context, s Session) any { return ctx.Value(transactionUnder{s}) }
