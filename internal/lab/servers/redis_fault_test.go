package servers_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/servers"
)

func TestARedisForgetsItsScriptsAndItsKeys(t *testing.T) {
	client := open(t, lab.OwnRedis(t))
	script := redis.NewScript(`return redis.call('SET', 'key', 'value')`)
	must(t, script.Load(t.Context(), client).Err())
	must(t, script.EvalSha(t.Context(), client, nil).Err())
	must(t, servers.FlushScripts(t.Context(), client))
	if err := script.EvalSha(t.Context(), client, nil).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT") {
		t.Errorf("the script that was forgotten: %v", err)
	}
	must(t, servers.FlushAll(t.Context(), client))
	if n := client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("it has %d keys", n)
	}
}
