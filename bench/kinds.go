package main

import (
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// The names of what is compared.
const (
	durable  = "intlock"
	async    = "intlock, async release"
	woken    = "intlock, woken"
	single   = "intlock, no batches"
	theProbe = "probe"
)

// kinds are all ways to lock on a vendor.
func kinds(vendor string) []kind {
	k := func(name string, open opener) kind { return kind{name, vendor, open} }
	all := []kind{
		k(theProbe, openProbe(vendor)),
		k(durable, ours(vendor, false, nil)),
		k(single, ours(vendor, false, nil, registry.WithBatching(false))),
		k("Spring's algorithm", openSpring(vendor, false)),
		k("Spring's algorithm, prepared", openSpring(vendor, true)),
	}
	switch vendor {
	case "postgres":
		all = append(all,
			k(async, ours(vendor, false, []repository.Option{repository.WithAsyncRelease()})),
			k(woken, ours(vendor, true, fast)),
			k("pglock 1.16", openPglock(20*time.Second)),
			k("pglock 1.16, lease 1 s", openPglock(time.Second)),
			k("advisory lock", openAdvisory))
	case "sqlite":
		all = append(all, k(woken, ours(vendor, true, nil)))
	default:
		all = append(all, k("GET_LOCK", openGetLock(vendor)))
	}
	return all
}

func redisKinds() []kind {
	return []kind{
		{"redsync", "redis", openRedsync(redisMemory)},
		{"redsync, fsync always", "redis durable", openRedsync(redisDurable)},
	}
}

func allKinds() (all []kind) {
	for _, vendor := range []string{"postgres", "mysql", "mariadb", "sqlite"} {
		all = append(all, kinds(vendor)...)
	}
	return append(all, redisKinds()...)
}

// pick returns the kinds with these names, in this order.
func pick(all []kind, names ...string) (some []kind) {
	for _, name := range names {
		for _, k := range all {
			if k.name == name {
				some = append(some, k)
			}
		}
	}
	return here(some)
}
