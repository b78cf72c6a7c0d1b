package backend

import (
	"errors"
	"strings"

	"github.com/glebarez/go-sqlite"
	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stockd/stockd/internal/stock"
)

// Failure is the failure of a backend. It says whether the server has answered,
// and rejects writes.
func Failure[N ~string](name N, err error) *stock.BackendError {
	return &stock.BackendError{Backend: string(name), Rejects: Rejects(err), Err: err}
}

// Rejects is why a server that has answered rejects writes, or empty: the error is none of a server, or of
// another kind.
func Rejects(err error) stock.Rejection {
	if answer, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return rejectsMySQL(answer)
	}
	if answer, ok := errors.AsType[*sqlite.Error](err); ok {
		return rejectsSQLite(answer)
	}
	if answer, ok := errors.AsType[redis.Error](err); ok {
		return rejectsRedis(answer.Error())
	}
	if answer, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return rejectsEtcd(answer)
	}
	return rejectsZooKeeper(err)
}

// The errors of a server that takes no writes, for whatever connection is made to it.
const (
	optionPrevents      = 1290 // read_only, super_read_only, innodb_read_only
	readOnlyTransaction = 1792
	readOnlyMode        = 1836
)

func rejectsMySQL(answer *mysql.MySQLError) stock.Rejection {
	for _, full := range []string{"No space left on device", "Disk quota exceeded"} { // of the operating system, in errors of any number
		if strings.Contains(answer.Message, full) {
			return stock.OutOfSpace
		}
	}
	if strings.Contains(answer.Message, noTablet) { // of a vtgate, for one of its shards
		return ""
	}
	switch answer.Number {
	case optionPrevents, readOnlyTransaction, readOnlyMode,
		1036, 1874, 1881, 3989: // a table, InnoDB, its recovery, a schema
		return stock.ReadOnly
	case 1044, 1045, 1130, 1142, 1143, 1227, 1370, 1698, 1820, 1862, 3118, 4151: // 1820 and 1862: the password has expired; the last two: the account is locked
		return stock.NotPermitted
	case 1021, 1114:
		return stock.OutOfSpace
	case 1037, 1038, 1041:
		return stock.OutOfMemory
	case 1040, 1203, 1226: // connections of all, of the user; statements of the user in an hour
		return stock.LimitReached
	case 1047: // a node of Galera without its cluster; Group Replication makes itself read-only
		return stock.NoQuorum
	case 1598, 1665, 1785, 3098: // binlog_format, enforce_gtid_consistency, what Group Replication requires
		return stock.WrongSettings
	case 1053, 3032: // the second: offline_mode
		return stock.NotReady
	case 1317, 1969, 3024: // it was killed, or took too long
		return ""
	default:
		return stock.Unsorted
	}
}

// rejectsSQLite reads primary result codes.
func rejectsSQLite(answer *sqlite.Error) stock.Rejection {
	const perm, readOnly, full, primary = 3, 8, 13, 0xff
	switch answer.Code() & primary {
	case perm:
		return stock.NotPermitted
	case readOnly:
		return stock.ReadOnly
	case full:
		return stock.OutOfSpace
	default:
		return ""
	}
}

// rejectsRedis reads the first word. What a command of a script was answered is the script's answer;
// before version 7 it is in the midst of one.
func rejectsRedis(answer string) stock.Rejection {
	if _, inner, ok := strings.Cut(answer, ": -"); ok && strings.HasPrefix(answer, "ERR Error running script") {
		answer = inner
	}
	word, _, _ := strings.Cut(answer, " ")
	switch {
	case word == "READONLY":
		return stock.ReadOnly
	case word == "NOPERM", word == "NOAUTH", word == "WRONGPASS", word == "DENIED", strings.HasPrefix(answer, "ERR ACL failure in script"):
		return stock.NotPermitted
	case word == "OOM":
		return stock.OutOfMemory
	case word == "MISCONF":
		return stock.NotSaved
	case word == "NOREPLICAS":
		return stock.TooFewReplicas
	case word == "CLUSTERDOWN", word == "MASTERDOWN":
		return stock.NoQuorum
	case word == "LOADING":
		return stock.NotReady
	case strings.HasPrefix(answer, "ERR max number of clients"):
		return stock.LimitReached
	case strings.HasPrefix(answer, "redis: "): // of the library: there is no key, or the transaction was not made
		return ""
	default:
		return stock.Unsorted
	}
}

func rejectsEtcd(answer error) stock.Rejection {
	switch {
	case errors.Is(answer, rpctypes.ErrNoSpace):
		return stock.OutOfSpace
	case errors.Is(answer, rpctypes.ErrPermissionDenied), errors.Is(answer, rpctypes.ErrAuthFailed), errors.Is(answer, rpctypes.ErrUserEmpty):
		return stock.NotPermitted
	case errors.Is(answer, rpctypes.ErrCorrupt):
		return stock.ReadOnly
	case errors.Is(answer, rpctypes.ErrNoLeader):
		return stock.NoQuorum
	case errors.Is(answer, rpctypes.ErrTooManyRequests):
		return stock.LimitReached
	default:
		return ""
	}
}

// zkQuota is how the library words an answer that it has no error for.
const zkQuota = "unknown error: -125"

func rejectsZooKeeper(err error) stock.Rejection {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL):
		return stock.NotPermitted
	case strings.HasSuffix(err.Error(), zkQuota):
		return stock.LimitReached
	default:
		return ""
	}
}
