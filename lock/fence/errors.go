package fence

import (
	"errors"
	"fmt"

	"github.com/signalbox-go/signalbox"
)

var (
	// ErrStale means that a newer holder has entered: this one was superseded. [StaleError] has both tokens. Trying
	// again with the same lease doesn't help.
	ErrStale = errors.New("fence: the token is stale: a newer holder has entered")
	// ErrForeign means that the resource is guarded by tokens of another issuer, which can't be compared with this one.
	// Use one kind of lock for each resource.
	ErrForeign = errors.New("fence: the token is of another issuer than the resource's")
	// ErrForgotten means that the effect is older than the horizon. Its record may have been swept, so nobody knows
	// whether it was had. It wasn't had now. Find out by hand. Then keep records for longer; see [DB.Sweep].
	ErrForgotten = errors.New("fence: the effect is older than the records that were kept")
	// ErrSchema means that the guards' tables are missing or of another version. Run [Schema].
	ErrSchema = errors.New("fence: the guards' tables are missing or different")
	// ErrBlocked means that another transaction held the resource for too long. Nothing was changed. A handler can
	// return signalbox.Snooze.
	ErrBlocked = errors.New("fence: another transaction holds the resource")
	// ErrNoTransaction means that the database has ended the transaction before its owner did: after an error that was overlooked, such as MariaDB's
	// deadlock, or by a statement that commits, such as COMMIT or CREATE TABLE. Check the error of each statement.
	ErrNoTransaction = errors.New("fence: the database has no transaction: an earlier error has rolled it back, or a statement such as COMMIT or CREATE TABLE has ended it")
	// ErrInvalid is [signalbox.ErrInvalid]: an argument is wrong, or the context lacks something. It isn't lock.ErrInvalid, which only lockers
	// return: they can be used without the rest of Signalbox.
	ErrInvalid = signalbox.ErrInvalid
)

// A StaleError is an [ErrStale] with both tokens.
type StaleError struct {
	Resource string // the lease's key
	Token    int64  // the one that was refused
	Highest  int64  // the one that has entered. If it equals Token, another holder has entered with an equal token
}

func (e *StaleError) Error() string {
	if e.Token == e.Highest {
		return fmt.Sprintf("%v: resource %q, token %d was used by another holder", ErrStale, e.Resource, e.Token)
	}
	return fmt.Sprintf("%v: resource %q, token %d, highest %d", ErrStale, e.Resource, e.Token, e.Highest)
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// foreign returns an ErrForeign.
func foreign(resource, issuer, known string) error {
	return fmt.Errorf("%w: resource %q, issuer %q, known issuer %q", ErrForeign, resource, issuer, known)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("fence: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
