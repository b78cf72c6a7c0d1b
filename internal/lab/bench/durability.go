package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
)

// durability asks the servers which writes they keep after a crash: a server that
// waits for its disk is slower than one that does not.
func durability(ctx context.Context, b *servers.Backends) (map[string]string, error) {
	kept := make(map[string]string)
	for _, one := range []struct {
		name string
		ask  func(context.Context, *servers.Backends) (string, error)
	}{
		{"database", askDatabase}, {"redis", askRedis}, {"etcd", askEtcd},
	} {
		said, err := one.ask(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("ask %s for its durability: %w", one.name, err)
		}
		if said != "" {
			kept[one.name] = said
		}
	}
	if b.ZooKeeper != nil {
		// Its setting cannot be read. With a synced log, its locks would be slower.
		kept["zookeeper"] = "it cannot be asked; the lab starts it with forceSync=no"
	}
	return kept, nil
}

const durabilityVariables = `SHOW VARIABLES WHERE variable_name IN
	('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'innodb_doublewrite', 'innodb_buffer_pool_size')`

func askDatabase(ctx context.Context, b *servers.Backends) (said string, err error) {
	if b.Database.Driver != repo.MySQL {
		return "journal_mode=WAL, synchronous=NORMAL", nil
	}
	bare, err := openBare(b.Database)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	rows, err := bare.db.QueryContext(ctx, durabilityVariables)
	if err != nil {
		return "", err
	}
	defer rows.Close() //nolint:errcheck // they have been read
	var list []string
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return "", err
		}
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return strings.Join(list, ", "), rows.Err()
}

func askRedis(ctx context.Context, b *servers.Backends) (said string, err error) {
	if b.Redis == nil || b.Redis.Started != servers.Local {
		return "", nil
	}
	client := b.Redis.Open()
	defer func() { err = errors.Join(err, client.Close()) }()
	var list []string
	for _, name := range []string{"appendonly", "appendfsync", "save"} {
		values, err := client.ConfigGet(ctx, name).Result()
		if err != nil {
			return "", err
		}
		list = append(list, fmt.Sprintf("%s=%q", name, values[name]))
	}
	return strings.ReplaceAll(strings.Join(list, ", "), `"`, ""), nil
}

// askEtcd writes once and sees whether that was synced: nothing else tells.
func askEtcd(ctx context.Context, b *servers.Backends) (said string, err error) {
	if b.Etcd == nil {
		return "", nil
	}
	client, err := b.Etcd.Open()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	before, err := etcdSyncs(ctx, b.Etcd.Endpoint)
	if err != nil {
		return "", err
	}
	if _, err := client.Put(ctx, "bench-durability", "1"); err != nil {
		return "", err
	}
	after, err := etcdSyncs(ctx, b.Etcd.Endpoint)
	if err != nil {
		return "", err
	}
	if before == after {
		return "the log is not synced (--unsafe-no-fsync)", nil
	}
	return "the log is synced", nil
}

// etcdSyncs is how often an etcd has synced its log, as it counts it.
func etcdSyncs(ctx context.Context, endpoint string) (string, error) {
	return metric(ctx, endpoint, "", "etcd_disk_wal_fsync_duration_seconds_count")
}

// metric is one of the figures that a server has for Prometheus. Where there is a token, it is sent.
func metric(ctx context.Context, endpoint, token, name string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	metrics, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(metrics)) {
		if n, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(n), nil
		}
	}
	return "", fmt.Errorf("the metrics of %s have no %s", endpoint, name)
}
