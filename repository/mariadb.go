package repository

import "github.com/intlock/intlock/internal/vendor"

// MariaDB is MySQL with INSERT ... RETURNING, which names the holder in the
// same round trip, with sequences, and with a lock timeout that one statement
// can carry: a request that nobody waits for any more leaves the queue for a
// locked row after a second instead of fifty.
func mariadb() dialect {
	d := mysql()
	d.vendor = vendor.MariaDB
	d.acquire = mariadbAcquire("{left}")
	d.run = answerRow
	// RETURNING comes after the row is ours, and IF draws nothing when it is
	// not. A number drawn in the VALUES would go backwards: its statement may be
	// overtaken before it gets the row.
	d.acquireToken = mariadbAcquire("IF({mine}, NEXTVAL({tokens}), {left})")
	// A row is locked when it is read, before the numbers of a SELECT are drawn.
	d.draw = shortWait + `SELECT NEXTVAL({tokens}) FROM {table} WHERE ` + standsText + ` FOR UPDATE`
	d.drawn = drawnRow
	d.tokenGrant = "SELECT, INSERT ON {tokens}"
	d.tokenFault = `SELECT CASE
  WHEN increment < 1 OR start_value < 1 THEN CONCAT('INCREMENT BY ', increment, ', START ', start_value)
  WHEN cache_size > 1 THEN CONCAT('CACHE ', cache_size)
  WHEN cycle_option THEN 'CYCLE'
  ELSE '' END
FROM {tokens}`
	d.many.acquire = mariadbAcquireMany("0")
	d.many.acquireToken = mariadbAcquireMany("IF(CLIENT_ID = :client_id, NEXTVAL({tokens}), 0)")
	d.many.draw, d.many.drawn, d.many.result, d.many.resultToken = "", nil, "", ""
	d.many.remove = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR " + mysqlDeleteMany(mysqlMine, "FOR UPDATE SKIP LOCKED")
	d.many.purge = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR " + mysqlDeleteMany(mysqlExpired, "FOR UPDATE SKIP LOCKED")
	// Should a plan wait for a row after all, it fails at once.
	d.renewMany = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR " + renewBySkipping
	return d
}

const shortWait = "SET STATEMENT innodb_lock_wait_timeout = 1 FOR "

func mariadbAcquire(number string) string {
	return shortWait + `INSERT INTO {table} ({columns}) VALUES ({row})
` + onDuplicate(":attempt", "ATTEMPT") + `
RETURNING COALESCE({mine}, 0), COALESCE(CLIENT_ID, ''), COALESCE(HOLDER, ''), ` + number
}

// mariadbAcquireMany answers with the row as it is afterwards. It may draw a
// number for a row that another attempt of this client has taken since the
// look; nobody gets it.
func mariadbAcquireMany(number string) string {
	return shortWait + mysqlAcquireMany + `
RETURNING LOCK_KEY, COALESCE(CLIENT_ID, ''), COALESCE(ATTEMPT, 0), COALESCE(HOLDER, ''), {left}, ` + number
}
