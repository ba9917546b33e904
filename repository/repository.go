package repository

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"
)

// LockRepository stores leases: rows that say who holds a key, and until when.
// It is the contract between the waiting (package registry) and the storing
// (this package), and it stands where Spring's interface of that name stands.
//
// An implementation
//
//   - must not wait: no sleeping, no polling, no retry, no goroutine of its
//     own. It asks the store once, looks at the answer, and returns;
//   - must let one clock decide when a lease ends, the store's. Callers pass
//     durations and get durations, never instants. A lease begins no later
//     than the store starts to work on the request, so a request that was
//     held up on its way grants a shorter lease, never a longer one. A lease
//     is expired when its end lies strictly before now; at the very instant
//     it is still held;
//   - must keep three outcomes apart: "held by another" is an answer and comes
//     without an error; an error that may pass by itself matches ErrTransient;
//     every other error is permanent. An error must never be reported as
//     "held", nor "held" as an error;
//   - must say ErrTransient, not false, when it cannot know whether a request
//     took effect (a lost connection, a statement that timed out). The caller
//     then treats the outcome as unknown. If it knows that there was no effect
//     the error should match ErrNotExecuted too;
//   - must be safe for concurrent use, and every operation must be atomic;
//   - should honour ctx, which carries the deadline of this one request.
//
// Package repositorytest holds the executable form of this contract.
//
// One repository should serve one registry. Two registries that share one do
// exclude each other, as each attempt is an owner of its own, but IsAcquired
// cannot tell them apart.
type LockRepository interface {
	// Acquire takes req.Key if it is free or its lease has expired. If the
	// very same attempt owns the row already, because an earlier request of
	// it had an unknown outcome, the lease is prolonged to at least req.TTL
	// from now, never shortened, and the token of the last answer counts. Another attempt of the same client is another
	// owner: it gets "held".
	Acquire(ctx context.Context, req Request) (Outcome, error)

	// Renew prolongs leases to at least ttl from now, in one request. It never
	// shortens one: requests may arrive late and out of order, and the holder
	// trusts the latest end it was told. It never inserts a row, and never
	// revives a lease that has expired, was taken over or deleted.
	//
	// Status i is about leases[i]. A repository that cannot take all of them at
	// once takes the first ones, one at least, and returns as many answers: ask
	// again for the rest. A row that a transaction has locked must not hold up
	// the others (LeaseBusy). An error says nothing about any of them.
	Renew(ctx context.Context, leases []Lease, ttl time.Duration) ([]LeaseStatus, error)

	// Delete gives the lease back by deleting its row. It returns false if the
	// row is not this lease's any more; the row of a successor is untouched.
	// An expired lease that nobody took over is deleted and returns true.
	Delete(ctx context.Context, lease Lease) (bool, error)

	// EndAfter gives the lease back, but keeps its row, and with it the key from
	// everybody, until d from now: sooner than the lease would have ended, or
	// later. It is a lease's last operation. The row is not this lease's any more
	// then, so nobody can renew or delete it, but for DeleteExpired once d has
	// passed; to IsAcquired it is still the client's. It returns false, and changes
	// nothing, where Delete would return false.
	EndAfter(ctx context.Context, lease Lease, d time.Duration) (bool, error)

	// IsAcquired reports whether this repository's client holds key now, by
	// whichever attempt.
	IsAcquired(ctx context.Context, key string) (bool, error)

	// DeleteExpired deletes expired rows of the region, whoever left them, among
	// the next ones behind the key after, in the order of the store; "" is before
	// all of them. It looks at a bounded number of rows, so that nobody who wants
	// a lock waits for it noticeably, and returns how many it deleted and the key
	// to go on after, "" at the end. A step may come by none of the region's rows.
	// A row goes only if it has expired by the store's clock as it is deleted; one
	// that a transaction has locked may stay. Nothing depends on it, as an expired
	// row is taken over in place; it only keeps the table small.
	DeleteExpired(ctx context.Context, after string) (deleted int64, next string, err error)

	// Get returns the row of key, also if its lease has expired, and whether
	// there is one.
	Get(ctx context.Context, key string) (info LockInfo, found bool, err error)

	// List returns the rows of the region ordered by key, expired ones too.
	List(ctx context.Context) ([]LockInfo, error)

	// ClientID names this client: the CLIENT_ID of the rows it owns.
	ClientID() string

	// Close frees what the repository opened itself (prepared statements). It
	// neither closes the database nor deletes any row: whoever holds a lease
	// gives it back with Delete. Operations after Close return ErrClosed.
	Close() error
}

// BatchRepository is a LockRepository that takes several requests to the store
// at once, for those that were made while it was busy with others. All that is
// said of Acquire and Delete holds for each request of a batch: it has its own
// outcome, its own token and its own error, and a bad one never fails its
// neighbours.
//
// Answer i is about request i. A repository that cannot take all of them at
// once takes the first ones, one at least, and returns as many answers. No key
// may occur twice in a batch. The order in which a batch takes its keys must
// not let two batches of different processes deadlock, and a row that somebody's
// transaction has locked must not hold up the others: its answer is ErrAlone.
//
// An error beside the answers is about all of them: none was executed if it is
// permanent or matches ErrNotExecuted, else nothing is known of any.
type BatchRepository interface {
	LockRepository

	// AcquireBatch is Acquire for each of reqs.
	AcquireBatch(ctx context.Context, reqs []Request) ([]Answer[Outcome], error)

	// DeleteBatch is Delete for each of leases.
	DeleteBatch(ctx context.Context, leases []Lease) ([]Answer[bool], error)
}

// Immediate marks a LockRepository whose operations never wait for anything, as
// those in memory. They are called on the goroutine of whoever wants the lock,
// and without a deadline; all others are called on goroutines of their own, so
// that nobody waits for a driver longer than he wants to.
type Immediate interface {
	LockRepository
	Immediate()
}

// Answer is what a batch says of one of its requests: what the operation for
// one returns.
type Answer[T any] struct {
	Value T
	Err   error
}

// Request asks for one key.
type Request struct {
	// Key is the LOCK_KEY to take, 1 to 36 printable ASCII characters.
	Key string
	// Attempt names the call that wants the lock, see NewAttempt. It is the
	// owner's proof of ownership, together with the client id.
	Attempt int64
	// TTL is the length of the lease, at least MinTTL. It is never truncated:
	// a store with coarser time rounds up.
	TTL time.Duration
	// Name is the readable name of the lock, for people who look at the table.
	// A store may shorten it, and drops what it cannot represent.
	Name string
	// Polling says that the last request of this attempt was refused, so that
	// this one may well be too. A store for which a refusal is dearer than a
	// look may look first.
	Polling bool
}

// Lease is the grant that an acquired Request stands for, and goes back into
// Renew and Delete. Naming the attempt keeps a late message of an earlier
// grant away from a later one of the same client.
type Lease struct {
	Key     string
	Attempt int64
}

// Lease returns the lease this request becomes when it is granted.
func (r Request) Lease() Lease { return Lease{Key: r.Key, Attempt: r.Attempt} }

// Outcome is the answer to a Request.
type Outcome struct {
	// Acquired tells whether the lease is granted. The fields below Token
	// describe the holder and are zero when it is.
	Acquired bool
	// Token is the grant's fencing token: a positive multiple of TokenStep, above
	// the token of every earlier grant of the key in its region, however those leases ended
	// and whoever deleted their rows. 0 for a refusal, and from a repository
	// that draws none (see WithTokens).
	Token int64
	// ClientID and Holder tell who has it: the row's CLIENT_ID and its
	// human-readable HOLDER. Empty where the store cannot tell in the same
	// round trip (MySQL), or when the holder changed during the request.
	ClientID string
	Holder   string
	// Remaining is what is left of the holder's lease; 0 means unknown, ask
	// again soon.
	Remaining time.Duration
	// Repeated tells that the request was sent more than once on its way, as
	// database/sql does when a connection breaks. This is the answer to the
	// last one; an earlier one may have taken the row too, or may yet.
	Repeated bool
}

// LockInfo is one row of the table.
type LockInfo struct {
	Key      string // LOCK_KEY
	Name     string // the readable name, empty if a Java service made the row
	ClientID string
	Holder   string // human-readable holder, empty if it is a Java service
	// Age is how long ago the row was made. That is when the lease was granted,
	// unless it was taken over from one that had expired: as Spring 7 does,
	// a take-over leaves CREATED_DATE. 0 in the layout of Spring 6.5 and older,
	// which does not keep it.
	Age time.Duration
	// Remaining is what is left of the lease, negative once it has expired.
	Remaining time.Duration

	attempt int64 // for ForceRelease; 0 if it is a Java service's
}

// Held reports whether the lease stands.
func (i LockInfo) Held() bool { return i.Remaining >= 0 }

// TokenStep is the distance between tokens of the store: they are multiples of
// it. The numbers between the token of a grant and the next multiple are the
// holder's own. A registry gives them to those of its goroutines that it hands
// the lease on to, so that each has a higher token than the one before.
const TokenStep = 1 << 10

// MinTTL is the shortest lease: the precision of the coarsest store.
const MinTTL = time.Millisecond

// MaxTTL keeps "now + ttl" inside every vendor's date type.
const MaxTTL = 100 * 365 * 24 * time.Hour

var (
	// ErrTransient is matched by errors that may pass by themselves: a
	// deadlock victim, a serialization failure, a busy database, a timeout, a
	// lost connection. Try again after a pause. Unless the error matches
	// ErrNotExecuted too, the outcome of the request is unknown: it may have
	// taken effect, or may yet.
	ErrTransient = errors.New("repository: transient error")

	// ErrNotExecuted is matched by transient errors of requests that had no
	// effect and never will: the database refused them, or was not reached.
	ErrNotExecuted = errors.New("repository: request not executed")

	// ErrAlone is the answer to a request of a batch that was not executed,
	// because it has to be made alone: by Acquire or Delete.
	ErrAlone = errors.New("repository: this request has to be made alone")

	// ErrClosed is returned by operations on a closed repository.
	ErrClosed = errors.New("repository: closed")

	// ErrInvalid is matched by errors about an argument: a key, a TTL, an
	// option, a custom query. Nothing was sent to the database.
	ErrInvalid = errors.New("repository: invalid argument")

	// ErrTable is matched by errors about the lock table: it is missing, or
	// its columns do not fit. The text says what to run.
	ErrTable = errors.New("repository: unusable lock table")
)

// NewAttempt returns a fresh attempt: a positive number that no other client
// will draw. It comes from the system's random source rather than a counter,
// so that a restarted process, a cloned virtual machine or a second process
// with the same client id never repeats one that is still in the table.
func NewAttempt() int64 {
	var b [8]byte
	rand.Read(b[:]) // never fails, by its documentation
	return int64(binary.LittleEndian.Uint64(b[:])>>1) | 1
}
