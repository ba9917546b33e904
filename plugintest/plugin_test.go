package plugintest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/go-co-op/gocron/v2"
	"github.com/intlock/intlock/leader"
	"github.com/intlock/intlock/middleware"
	"github.com/intlock/intlock/plugin"
	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
	"github.com/intlock/intlock/schema"
	"github.com/oklog/run"
	"github.com/pressly/goose/v3"
	"github.com/reugn/go-quartz/job"
	"github.com/reugn/go-quartz/quartz"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	_ "modernc.org/sqlite"
)

// database is one that several instances share.
type database struct {
	t   *testing.T
	dsn string
}

func newDatabase(t *testing.T) database {
	d := database{t, "file:" + filepath.Join(t.TempDir(), "locks.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"}
	must(t, schema.Apply(t.Context(), d.open(), schema.DefaultPrefix))
	return d
}

func (d database) open() *sql.DB {
	db, err := sql.Open("sqlite", d.dsn)
	must(d.t, err)
	d.t.Cleanup(func() { db.Close() })
	return db
}

// locks is the registry of another instance.
func (d database) locks() *registry.JdbcLockRegistry {
	repo, err := repository.New(d.t.Context(), d.open())
	must(d.t, err)
	locks, err := registry.New(repo, registry.WithIdleBetweenTries(20*time.Millisecond), registry.WithLogger(slog.New(slog.DiscardHandler)))
	must(d.t, err)
	d.t.Cleanup(func() { locks.Close(context.Background()) })
	return locks
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("it does not come: %s", what)
		}
	}
}

// Several instances migrate at once: each migration runs once.
func TestGoose(t *testing.T) {
	d := newDatabase(t)
	migrations := fstest.MapFS{}
	for i := range 5 {
		migrations[fmt.Sprintf("%05d_step.sql", i+1)] = &fstest.MapFile{Data: fmt.Appendf(nil, "-- +goose Up\nCREATE TABLE STEP%d (N INTEGER);\nINSERT INTO STEP%d VALUES (1);\n", i, i)}
	}
	var files fs.FS = migrations
	var applied atomic.Int32
	var wg sync.WaitGroup
	for i := range 4 {
		locker := plugin.NewGoose(d.locks(), "goose", registry.WithWait(20*time.Second))
		option := goose.WithSessionLocker(locker)
		if i%2 == 1 {
			option = goose.WithLocker(locker)
		}
		p, err := goose.NewProvider(goose.DialectSQLite3, d.open(), files, option, goose.WithSlog(slog.New(slog.DiscardHandler)))
		must(t, err)
		wg.Go(func() {
			results, err := p.Up(t.Context())
			if err != nil {
				t.Error(err)
			}
			applied.Add(int32(len(results)))
		})
	}
	wg.Wait()
	if n := applied.Load(); n != 5 {
		t.Errorf("%d migrations were applied, want 5", n)
	}
	if err := plugin.NewGoose(d.locks(), "goose").SessionUnlock(t.Context(), nil); !errors.Is(err, registry.ErrNotHeld) {
		t.Errorf("unlock without a lock: %v", err)
	}
}

// storage is a certmagic.Storage whose locks are ours.
type storage struct {
	*certmagic.FileStorage
	*plugin.CertMagic
}

func (s storage) Lock(ctx context.Context, name string) error   { return s.CertMagic.Lock(ctx, name) }
func (s storage) Unlock(ctx context.Context, name string) error { return s.CertMagic.Unlock(ctx, name) }

func (s storage) TryLock(ctx context.Context, name string) (bool, error) {
	return s.CertMagic.TryLock(ctx, name)
}

var _ certmagic.Storage = storage{}

func TestCertMagic(t *testing.T) {
	d := newDatabase(t)
	ctx := t.Context()
	files := &certmagic.FileStorage{Path: t.TempDir()}
	a, b := storage{files, plugin.NewCertMagic(d.locks())}, storage{files, plugin.NewCertMagic(d.locks(), registry.WithTTL(10*time.Second))}
	must(t, a.Lock(ctx, "issue_cert_example.org"))
	if ok, err := b.TryLock(ctx, "issue_cert_example.org"); ok || err != nil {
		t.Errorf("TryLock = %v, %v", ok, err)
	}
	waited := make(chan error, 1)
	go func() { waited <- b.Lock(ctx, "issue_cert_example.org") }()
	must(t, a.RenewLockLease(ctx, "issue_cert_example.org", time.Minute))
	must(t, a.Unlock(ctx, "issue_cert_example.org"))
	must(t, <-waited)
	must(t, b.Unlock(ctx, "issue_cert_example.org"))
	if err := b.Unlock(ctx, "issue_cert_example.org"); !errors.Is(err, registry.ErrNotHeld) {
		t.Errorf("again: %v", err)
	}
	if err := b.RenewLockLease(ctx, "x", time.Minute); !errors.Is(err, registry.ErrNotHeld) {
		t.Errorf("renew nothing: %v", err)
	}
	if ok, err := b.TryLock(ctx, "other"); !ok || err != nil {
		t.Errorf("TryLock = %v, %v", ok, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := a.Lock(ended, "other"); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
}

// The jobs of gocron run on the leader.
func TestGocronElector(t *testing.T) {
	d := newDatabase(t)
	ran := make([]atomic.Int32, 2)
	var electors []*leader.Elector
	for i := range ran {
		e, err := leader.New(d.locks(), "scheduler", leader.Candidate{}, leader.WithLogger(slog.New(slog.DiscardHandler)))
		must(t, err)
		execute, interrupt := plugin.Actor(e.Run)
		go execute()
		defer interrupt(nil)
		electors = append(electors, e)
		s, err := gocron.NewScheduler(gocron.WithDistributedElector(plugin.Elector{Elector: e}))
		must(t, err)
		defer s.Shutdown()
		_, err = s.NewJob(gocron.DurationJob(50*time.Millisecond), gocron.NewTask(func() { ran[i].Add(1) }))
		must(t, err)
		eventually(t, "a leader", func() bool { return electors[0].IsLeader() })
		s.Start()
	}
	eventually(t, "five runs", func() bool { return ran[0].Load() >= 5 })
	if n := ran[1].Load(); n != 0 {
		t.Errorf("it ran %d times on the other", n)
	}
	must(t, electors[0].Yield(t.Context()))
	eventually(t, "the other", func() bool { return ran[1].Load() >= 2 })
	if err := (plugin.Elector{Elector: electors[0]}).IsLeader(t.Context()); !errors.Is(err, plugin.ErrNotLeader) {
		t.Errorf("err = %v, want ErrNotLeader", err)
	}
}

// go-quartz takes a sync.Locker for a queue that schedulers share, and its jobs can
// use one themselves.
func TestQuartz(t *testing.T) {
	d := newDatabase(t)
	var at, runs atomic.Int32
	for range 2 {
		mutex := d.locks().Obtain("quartz job")
		s, err := quartz.NewStdScheduler(quartz.WithQueue(quartz.NewJobQueue(), mutex))
		if err != nil {
			t.Fatal(err)
		}
		s.Start(t.Context())
		defer s.Stop()
		locked := d.locks().Obtain("work")
		must(t, s.ScheduleJob(quartz.NewJobDetail(job.NewFunctionJob(func(context.Context) (int, error) {
			locked.Lock()
			defer locked.Unlock()
			if at.Add(1) > 1 {
				t.Error("two at once")
			}
			time.Sleep(5 * time.Millisecond)
			at.Add(-1)
			runs.Add(1)
			return 0, nil
		}), quartz.NewJobKey("work")), quartz.NewSimpleTrigger(30*time.Millisecond)))
	}
	eventually(t, "six runs", func() bool { return runs.Load() >= 6 })
}

// An elector as an actor of a run.Group.
func TestRunGroup(t *testing.T) {
	d := newDatabase(t)
	e, err := leader.New(d.locks(), "role", leader.Candidate{}, leader.WithLogger(slog.New(slog.DiscardHandler)))
	must(t, err)
	var g run.Group
	g.Add(plugin.Actor(e.Run))
	over := errors.New("over")
	g.Add(func() error {
		eventually(t, "leadership", e.IsLeader)
		return over
	}, func(error) {})
	if err := g.Run(); err != over {
		t.Errorf("err = %v", err)
	}
	if _, found, err := e.Leader(t.Context()); found || err != nil {
		t.Errorf("found %v, %v: want it given back", found, err)
	}
}

// An elector in an fx application.
func TestFx(t *testing.T) {
	d := newDatabase(t)
	locks := d.locks()
	e, err := leader.New(locks, "role", leader.Candidate{}, leader.WithLogger(slog.New(slog.DiscardHandler)))
	must(t, err)
	app := fxtest.New(t, fx.NopLogger, fx.Invoke(func(l fx.Lifecycle) {
		l.Append(fx.Hook{OnStop: locks.Close})
		start, stop := plugin.Hooks(e.Run, func(err error) { t.Error(err) })
		l.Append(fx.Hook{OnStart: start, OnStop: stop})
	}))
	app.RequireStart()
	eventually(t, "leadership", e.IsLeader)
	app.RequireStop()
	if e.IsLeader() {
		t.Error("it leads on")
	}
}

// slowHealth is a gRPC service that takes its time.
type slowHealth struct {
	grpc_health_v1.UnimplementedHealthServer
	entered, leave chan struct{}
}

func (s slowHealth) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if _, ok := registry.HoldFromContext(ctx); !ok {
		return nil, status.Error(codes.Internal, "no hold")
	}
	s.entered <- struct{}{}
	<-s.leave
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// A second call with the key of one that is under way is refused.
func TestGRPC(t *testing.T) {
	d := newDatabase(t)
	guard, err := middleware.New(d.locks(), "check")
	must(t, err)
	service := slowHealth{entered: make(chan struct{}), leave: make(chan struct{})}
	server := grpc.NewServer(grpc.UnaryInterceptor(middleware.Unary[*grpc.UnaryServerInfo, grpc.UnaryHandler](guard,
		func(_ context.Context, req any, info *grpc.UnaryServerInfo) (string, error) {
			return middleware.Key(info.FullMethod, req.(*grpc_health_v1.HealthCheckRequest).Service), nil
		},
		func(err error) error {
			if errors.Is(err, middleware.ErrRefused) {
				return status.Error(codes.Aborted, err.Error())
			}
			return status.Error(codes.Unavailable, "please try again")
		})))
	grpc_health_v1.RegisterHealthServer(server, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go server.Serve(listener)
	defer server.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	first := make(chan error, 1)
	go func() {
		_, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "loans"})
		first <- err
	}()
	<-service.entered
	_, err = client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "loans"})
	if got := status.Convert(err); got.Code() != codes.Aborted || got.Message() != middleware.DefaultText {
		t.Errorf("err = %v, want the refusal's status", err)
	}
	close(service.leave)
	must(t, <-first)
}
