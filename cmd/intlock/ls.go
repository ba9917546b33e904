package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/intlock/intlock/registry"
	"github.com/intlock/intlock/repository"
)

// lock is a row as it is shown. Times are seconds, for scripts.
type lock struct {
	Region   string  `json:"region"`
	Name     string  `json:"name"`
	Key      string  `json:"key"`
	ClientID string  `json:"client_id"`
	Holder   string  `json:"holder"`
	Since    float64 `json:"since_seconds"`
	Left     float64 `json:"left_seconds"`
	Held     bool    `json:"held"`

	info repository.LockInfo
}

func newLock(region string, info repository.LockInfo) lock {
	return lock{Region: region, Name: info.Name, Key: info.Key, ClientID: info.ClientID, Holder: info.Holder,
		Since: info.Age.Seconds(), Left: info.Remaining.Seconds(), Held: info.Held(), info: info}
}

// name is what people call the lock.
func (l lock) name() string {
	if l.Name != "" {
		return printable(l.Name)
	}
	return l.Key
}

func (l lock) holder() string {
	if l.Holder != "" {
		return printable(l.Holder)
	}
	return "client " + l.ClientID
}

func (l lock) left() string {
	if !l.Held {
		return "expired"
	}
	return short(l.info.Remaining)
}

// printable keeps what others have written into the table from moving our cursor.
func printable(s string) string {
	out := []rune(s)
	for i, c := range out {
		if c < ' ' || c >= 0x7f && c < 0xa0 {
			out[i] = '?'
		}
	}
	return string(out)
}

// short is a duration for people.
func short(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

var lsCommand = &command{
	name:    "ls",
	summary: "list the locks that are held",
	usage:   "ls [flags]",
	text: `
Lists the locks of the region: name, holder, since when, and how long the lease lasts
if it is not renewed. With -a the rows of leases that have ended too, and those of
all regions.

"Since" is when the row was made. A lease that was taken over from one that had expired
keeps that row. Fencing tokens are not in the table: they are given to the holder with
the grant, and the next one is higher.`,
	flags: func(fs *flag.FlagSet, o *options) {
		lockFlags(fs, o)
		fs.BoolVar(&o.all, "a", false, "all regions, and leases that have ended")
		fs.BoolVar(&o.json, "json", false, "print JSON")
	},
	run: func(ctx context.Context, p program, o *options, args []string) error {
		if len(args) > 0 {
			return usageError("unexpected argument %q", args[0])
		}
		repo, end, err := o.repository(ctx)
		if err != nil {
			return err
		}
		defer end()
		all, err := list(ctx, o, repo)
		if err != nil {
			return databaseError(err)
		}
		if !o.all {
			all = held(all)
		}
		if o.json {
			return printJSON(p.out, all)
		}
		printTable(p.out, all)
		return nil
	},
}

// list reads the rows of the region, or of all.
func list(ctx context.Context, o *options, repo *repository.DefaultLockRepository) ([]lock, error) {
	regions := []string{o.region}
	if o.all {
		var err error
		if regions, err = repo.Regions(ctx); err != nil {
			return nil, err
		}
	}
	all := []lock{}
	for _, region := range regions {
		infos, err := repo.ListRegion(ctx, region)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			all = append(all, newLock(region, info))
		}
	}
	return all, nil
}

// held are those whose lease stands.
func held(all []lock) []lock {
	return slices.DeleteFunc(slices.Clone(all), func(l lock) bool { return !l.Held })
}

func printTable(to io.Writer, all []lock) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REGION\tNAME\tHOLDER\tSINCE\tLEFT")
	for _, l := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", printable(l.Region), l.name(), l.holder(), short(l.info.Age), l.left())
	}
	w.Flush()
}

func printJSON(to io.Writer, v any) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

var showCommand = &command{
	name:    "show",
	summary: "show who holds one lock",
	usage:   "show [flags] KEY",
	text: `
Shows the row of the lock KEY. KEY is what programs call the lock, or the LOCK_KEY of
its row.

Exit status: 0 if the lock is held, 1 if it is free.`,
	flags: func(fs *flag.FlagSet, o *options) {
		lockFlags(fs, o)
		fs.BoolVar(&o.json, "json", false, "print JSON")
	},
	run: func(ctx context.Context, p program, o *options, args []string) error {
		key, err := oneKey(args)
		if err != nil {
			return err
		}
		repo, end, err := o.repository(ctx)
		if err != nil {
			return err
		}
		defer end()
		info, found, err := repo.Get(ctx, registry.PathFor(key))
		if err != nil {
			return databaseError(err)
		}
		l := newLock(o.region, info)
		l.Held = found && l.Held
		if l.Key == "" {
			l.Key = registry.PathFor(key)
		}
		switch {
		case o.json:
			err = printJSON(p.out, l)
		case !found:
			fmt.Fprintf(p.out, "%s is free\n", key)
		default:
			w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
			fmt.Fprintf(w, "name\t%s\nkey\t%s\nregion\t%s\nholder\t%s\nclient\t%s\nsince\t%s\nleft\t%s\n",
				l.name(), l.Key, l.Region, l.holder(), l.ClientID, short(l.info.Age), l.left())
			w.Flush()
		}
		if err == nil && !l.Held {
			return exited(exitFailed)
		}
		return err
	},
}

func oneKey(args []string) (string, error) {
	if len(args) != 1 || args[0] == "" {
		return "", usageError("want one key")
	}
	return args[0], nil
}
