package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
)

// theatre sets up scenes. Replicas that served one try serve the next one that
// has the same stage, unless they were spoilt.
type theatre struct {
	keeper   *servers.Supervisor
	backends *servers.Backends
	plan     Plan
	goods    int64 // the last that was given to a scene

	cluster *cluster.Cluster
	stage   Stage // of the cluster
}

// lacks says why a stage cannot be set up, or is empty.
func (t *theatre) lacks(stage Stage) string {
	for _, need := range stage.Needs {
		if need == MySQL {
			if t.backends.Database.Started == servers.Embedded {
				return "needs MySQL or MariaDB: SQLite has neither row locks nor connections that wait for them"
			}
			continue
		}
		if reason, missing := t.backends.Missing[string(need)]; missing {
			return reason
		}
	}
	return ""
}

// perform does what a part says, and leaves its history in the file.
func (t *theatre) perform(ctx context.Context, p Part, file string) (err error) {
	writer, err := history.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, writer.Close()) }()
	t.goods++
	s := &Scene{Keeper: t.keeper, Backends: t.backends, Goods: t.goods, History: writer, file: file}
	defer func() { err = errors.Join(err, t.strike(context.WithoutCancel(ctx), s)) }()
	if err := t.set(ctx, s, p.Stage); err != nil {
		return err
	}
	s.Start = time.Now()
	for _, step := range p.Steps {
		if err := step(ctx, s); err != nil {
			return err
		}
	}
	return t.gather(s)
}

// gather adds what the replicas wrote down themselves since the try began.
func (t *theatre) gather(s *Scene) error {
	if s.Cluster == nil {
		return nil
	}
	for _, replica := range s.Cluster.Replicas {
		if file := replica.History(); file != "" {
			if err := s.History.Copy(file, s.Start); err != nil {
				return fmt.Errorf("read what %s wrote down: %w", replica.Name, err)
			}
		}
	}
	return nil
}

// set has everything run that the stage needs.
func (t *theatre) set(ctx context.Context, s *Scene, stage Stage) error {
	var env []string
	s.Own = stage.Own
	if stage.Servers != nil {
		own, err := stage.Servers(ctx, s)
		if err != nil {
			return err
		}
		s.Spoil() // its servers end with the try
		env = own
	}
	if stage.Replicas == 0 {
		return nil
	}
	if t.cluster != nil && (s.spoilt || !stage.same(t.stage)) {
		if err := t.close(ctx); err != nil {
			return err
		}
	}
	if t.cluster == nil {
		c, err := cluster.Start(ctx, t.keeper, t.options(stage, env, s.Own))
		if err != nil {
			return err
		}
		t.cluster, t.stage = c, stage
	}
	s.Cluster = t.cluster
	return nil
}

func (t *theatre) options(stage Stage, env []string, own map[int][]string) cluster.Options {
	return cluster.Options{
		Binary: t.plan.Binary, Replicas: stage.Replicas, Lab: stage.Lab,
		Balancer: t.plan.Servers.Mode, Embedded: t.backends.Database.Started == servers.Embedded,
		// What stands later wins.
		Env: slices.Concat(t.backends.Env(), stage.Env, env), Own: own,
	}
}

// same tells whether one cluster serves both stages.
func (a Stage) same(b Stage) bool {
	return a.Replicas == b.Replicas && a.Lab == b.Lab && slices.Equal(a.Env, b.Env) && a.Own == nil && b.Own == nil
}

// strike ends what a try leaves behind.
func (t *theatre) strike(ctx context.Context, s *Scene) error {
	var errs []error
	for _, do := range slices.Backward(s.closers) {
		errs = append(errs, do())
	}
	if s.spoilt {
		errs = append(errs, t.close(ctx))
	}
	return errors.Join(errs...)
}

// close ends the replicas.
func (t *theatre) close(ctx context.Context) error {
	if t.cluster == nil {
		return nil
	}
	err := t.cluster.Close(ctx)
	t.cluster = nil
	return err
}
