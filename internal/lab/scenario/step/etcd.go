package step

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/scenario"
)

// latestKey is the key that was created last in etcd.
func latestKey(ctx context.Context, s *scenario.Environment) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	client, err := s.Backends.Etcd.Open()
	if err != nil {
		return "", err
	}
	defer client.Close() //nolint:errcheck // nothing is lost with it
	found, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
	if err == nil && len(found.Kvs) == 0 {
		err = errors.New("there is none")
	}
	if err != nil {
		return "", fmt.Errorf("look for the latest key in etcd: %w", err)
	}
	return string(found.Kvs[0].Key), nil
}
