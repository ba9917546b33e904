package plugintest

import (
	"context"
	"sync"

	"github.com/caddyserver/certmagic"
	"github.com/go-co-op/gocron/v2"
	"github.com/intlock/intlock/leader"
	"github.com/intlock/intlock/middleware"
	"github.com/intlock/intlock/plugin"
	"github.com/intlock/intlock/registry"
	"github.com/oklog/run"
	"github.com/pressly/goose/v3/lock"
	"go.uber.org/fx"
	"google.golang.org/grpc"
)

// The compiler says whether the shapes fit.
var (
	_ sync.Locker                = (*registry.JdbcLock)(nil)
	_ lock.Locker                = (*plugin.Goose)(nil)
	_ lock.SessionLocker         = (*plugin.Goose)(nil)
	_ certmagic.Locker           = (*plugin.CertMagic)(nil)
	_ certmagic.TryLocker        = (*plugin.CertMagic)(nil)
	_ certmagic.LockLeaseRenewer = (*plugin.CertMagic)(nil)
	_ gocron.Elector             = plugin.Elector{}
)

func _(g *run.Group, e *leader.Elector, locks *registry.JdbcLockRegistry, l fx.Lifecycle, m *middleware.Guard) grpc.UnaryServerInterceptor {
	g.Add(plugin.Actor(e.Run))
	start, stop := plugin.Hooks(e.Run, nil)
	l.Append(fx.Hook{OnStart: start, OnStop: stop})
	l.Append(fx.Hook{OnStop: locks.Close})
	return middleware.Unary[*grpc.UnaryServerInfo, grpc.UnaryHandler](m,
		func(context.Context, any, *grpc.UnaryServerInfo) (string, error) { return "key", nil }, nil)
}
