package repository

import "github.com/intlock/intlock/internal/vendor"

// MariaDB is MySQL with INSERT ... RETURNING, which names the holder in the
// same round trip, and with a lock timeout that one statement can carry: a
// request that nobody waits for any more leaves the queue for a locked row
// after a second instead of fifty.
func mariadb() dialect {
	d := mysql()
	d.vendor = vendor.MariaDB
	d.acquire = `SET STATEMENT innodb_lock_wait_timeout = 1 FOR INSERT INTO {table} ({columns}) VALUES ({row})
` + onDuplicate(":attempt", "ATTEMPT") + `
RETURNING COALESCE({mine}, 0), COALESCE(CLIENT_ID, ''), COALESCE(HOLDER, ''), {left}`
	d.run = answerRow
	// Should a plan wait for a row after all, it fails at once.
	d.renewMany = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR " + renewBySkipping
	return d
}
