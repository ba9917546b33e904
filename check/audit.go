package check

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// AuditScript makes a table in which a trigger notes every lease that the database
// gives, in the order in which it does, whatever becomes of the answer. What a killed
// process, or one whose connection broke, has got is decided by it. MySQL has none: what
// a trigger inserts there changes the answer to the statement that has set it off.
func AuditScript(vendor string) []string {
	const (
		changed = "OLD.CLIENT_ID <> NEW.CLIENT_ID OR OLD.ATTEMPT <> NEW.ATTEMPT"
		note    = "INSERT INTO AUDIT (SEQ, LOCK_KEY, CLIENT_ID, ATTEMPT) VALUES (%s, NEW.LOCK_KEY, NEW.CLIENT_ID, NEW.ATTEMPT)"
	)
	switch vendor {
	case "mysql":
		return nil
	case "postgres":
		return []string{
			"CREATE SEQUENCE AUDIT_SEQ",
			"CREATE TABLE AUDIT (SEQ BIGINT PRIMARY KEY, LOCK_KEY CHAR(36), CLIENT_ID CHAR(36), ATTEMPT BIGINT)",
			"CREATE FUNCTION AUDIT_NOTE() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " + fmt.Sprintf(note, "nextval('AUDIT_SEQ')") + "; RETURN NULL; END $$",
			"CREATE TRIGGER AUDIT_INSERT AFTER INSERT ON INT_LOCK FOR EACH ROW EXECUTE FUNCTION AUDIT_NOTE()",
			"CREATE TRIGGER AUDIT_UPDATE AFTER UPDATE ON INT_LOCK FOR EACH ROW WHEN (" + changed + ") EXECUTE FUNCTION AUDIT_NOTE()",
		}
	case "sqlite":
		text := strings.ReplaceAll(note, "SEQ, ", "")
		text = strings.ReplaceAll(text, "%s, ", "")
		return []string{
			"CREATE TABLE AUDIT (SEQ INTEGER PRIMARY KEY AUTOINCREMENT, LOCK_KEY TEXT, CLIENT_ID TEXT, ATTEMPT INTEGER)",
			"CREATE TRIGGER AUDIT_INSERT AFTER INSERT ON INT_LOCK BEGIN " + text + "; END",
			"CREATE TRIGGER AUDIT_UPDATE AFTER UPDATE ON INT_LOCK WHEN " + changed + " BEGIN " + text + "; END",
		}
	}
	text := fmt.Sprintf(note, "UUID_SHORT()") // rises, also over restarts
	return []string{
		"CREATE TABLE AUDIT (SEQ BIGINT UNSIGNED PRIMARY KEY, LOCK_KEY CHAR(36), CLIENT_ID CHAR(36), ATTEMPT BIGINT)",
		"CREATE TRIGGER AUDIT_INSERT AFTER INSERT ON INT_LOCK FOR EACH ROW " + text,
		"CREATE TRIGGER AUDIT_UPDATE AFTER UPDATE ON INT_LOCK FOR EACH ROW IF " + changed + " THEN " + text + "; END IF",
	}
}

// Confirmed stands in for Audit where there is no trigger: the leases that clients have
// heard of, in the order of their tokens. A refusal because of one that nobody has heard
// of says nothing then, and is taken out.
func (h *History) Confirmed() map[string][]LeaseID {
	given := map[string][]LeaseID{}
	for id := range h.Leases {
		given[id.Key] = append(given[id.Key], id)
	}
	for _, ids := range given {
		slices.SortFunc(ids, func(a, b LeaseID) int { return cmp.Compare(h.Leases[a].Token, h.Leases[b].Token) })
	}
	lost := map[[2]string]bool{}
	for _, a := range h.Attempts {
		if a.Outcome == Try { // killed
			lost[[2]string{a.Key, a.Client}] = true
		}
	}
	for id := range h.Asked {
		if h.Leases[id] == nil {
			lost[[2]string{id.Key, id.Client}] = true
		}
	}
	h.Refusals = slices.DeleteFunc(h.Refusals, func(r Record) bool { return lost[[2]string{r.Key, r.Holder}] })
	return given
}

// Audit reads what was noted: the leases of each key in the order in which they were
// given.
func Audit(ctx context.Context, db *sql.DB) (map[string][]LeaseID, error) {
	rows, err := db.QueryContext(ctx, "SELECT LOCK_KEY, CLIENT_ID, ATTEMPT FROM AUDIT ORDER BY SEQ")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	given := map[string][]LeaseID{}
	for rows.Next() {
		var l LeaseID
		if err := rows.Scan(&l.Key, &l.Client, &l.Attempt); err != nil {
			return nil, err
		}
		l.Key, l.Client = strings.TrimRight(l.Key, " "), strings.TrimRight(l.Client, " ")
		given[l.Key] = append(given[l.Key], l)
	}
	return given, rows.Err()
}
