package lock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// isDenied reports whether Redis denies its user a command or key that a script uses.
func isDenied(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && (strings.HasPrefix(answer.Error(), "NOPERM") ||
		strings.Contains(answer.Error(), "ACL failure in script") || strings.Contains(answer.Error(), "The user executing the script can't"))
}

// advise adds to an error about denied rights what the user needs for this lock. It returns other errors unchanged.
func advise(err error, p place) error {
	if !isDenied(err) {
		return err
	}
	return fmt.Errorf("%w (a lock needs a Redis user with the keys %.200q, %.200q and %.200q, the channels %.200q, and the commands of a lock user in docs/operations/access.md: "+
		"ACL SETUSER NAME ~%s* &%s* +eval +evalsha +get +set +del +pexpire +pttl +time +info +zadd +zcard +zpopmin +zrem +publish +subscribe +unsubscribe)",
		err, p.lock, p.fence, p.line, channelPrefix+"*", p.lock, channelPrefix)
}
