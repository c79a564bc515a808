package atomicfile

import (
	"fmt"
	"os"
	"syscall"
)

// AnyUser is a user to whom no file has to belong.
const AnyUser = -1

// CheckOwner tells why a file is not one that this user alone has: it belongs to another user, or
// others have rights to it that are denied them.
func CheckOwner(info os.FileInfo, user int, denied os.FileMode) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case user != AnyUser && !ok:
		return fmt.Errorf("the system does not say to whom it belongs, and this is user %d; remove it", user)
	case user != AnyUser && int(stat.Uid) != user:
		return fmt.Errorf("it belongs to user %d, and this is user %d; remove it, and see who may write to its directory", stat.Uid, user)
	}
	switch mode := info.Mode().Perm(); {
	case mode&denied&0o022 != 0:
		return fmt.Errorf("other users may write to it (mode %04o); see who has, then chmod go-w or remove it", mode)
	case mode&denied != 0:
		return fmt.Errorf("other users may read it (mode %04o); see who has, then chmod go= or remove it", mode)
	}
	return nil
}
