// Package sizing computes what a stream of messages needs of a database: rows, disk, WAL, memory and connections. It counts Pawl's own part of a
// message, which is its row in pawl.inbox; your rows come on top. Sizes of tuples follow PostgreSQL's page layout, all else is measured.
package sizing

import (
	"fmt"
	"math"
	"time"
)

// A Load is what is asked for.
type Load struct {
	PerSecond float64       // messages
	Remember  time.Duration // the consumer's Retention
	Key       int           // octets of a message's key
	Consumer  int           // octets of the consumer's name
	Random    bool          // keys in no order, as UUIDs of version 4 are; else they grow, as ids and UUIDs of version 7 do
	Handler   time.Duration // of one message, with its statements
	Capacity  float64       // messages a second that one database bears
	Processes int
}

// A Need is what the load takes.
type Need struct {
	Rows         float64 `json:"rows"`
	HeapOctets   float64 `json:"heap_octets"`
	KeyOctets    float64 `json:"key_index_octets"`
	AgeOctets    float64 `json:"age_index_octets"`
	DiskOctets   float64 `json:"disk_octets"`              // with room for what is purged and not yet used again
	WALPerSecond float64 `json:"wal_octets_per_second"`    // claims and purges, without images of pages
	ImagesPerDay float64 `json:"wal_image_octets_per_day"` // an estimate: of pages of the index of keys, after each checkpoint
	WALPerDay    float64 `json:"wal_octets_per_day"`
	HotOctets    float64 `json:"hot_octets"` // of indexes and heap that claims and purges touch all the time
	InHand       float64 `json:"in_hand"`    // messages at once
	Connections  int     `json:"connections"`
	Cells        int     `json:"cells"` // databases
}

const (
	page, pageHead = 8192, 24
	pointer        = 4 // of a tuple in its page

	// Leaf pages are 90 % full where keys grow, and 68 % where they come in no order. Inner pages add 3 %. Measured: keys of 36 octets.
	fullGrowing, fullRandom, inner = 0.90, 0.68, 1.03

	// Octets of WAL of one claim beyond the tuples that it carries, of one commit each. Measured: PostgreSQL 15, without images of pages.
	walGrowing, walRandom = 228, 263
	// Octets of WAL of one row that is purged and vacuumed. Measured.
	walPurged = 128

	checkpoint = 5 * time.Minute // checkpoint_timeout, its default

	// Autovacuum begins when a fifth of the rows has died; until then their places are not used again.
	vacuumRoom = 1.2

	// A message takes its round trips beside its handler. Measured on one machine.
	roundTrips = 2 * time.Millisecond
)

func aligned(n int) float64 { return float64((n + 7) / 8 * 8) }

// Validate returns what is out of bounds.
func (l Load) Validate() error {
	switch {
	case !(l.PerSecond > 0 && l.PerSecond <= 1e7):
		return fmt.Errorf("messages a second must lie between 0 and 10,000,000, it is %v", l.PerSecond)
	case l.Remember < time.Minute || l.Remember > 10*365*24*time.Hour:
		return fmt.Errorf("what is remembered must lie between 1m and 10 years, it is %v", l.Remember)
	case l.Key < 1 || l.Key > 126 || l.Consumer < 1 || l.Consumer > 126:
		return fmt.Errorf("key and consumer must have 1 to 126 octets, they have %d and %d", l.Key, l.Consumer)
	case l.Handler < 0 || l.Handler > time.Hour:
		return fmt.Errorf("a handler must take between 0 and 1h, it takes %v", l.Handler)
	case !(l.Capacity > 0):
		return fmt.Errorf("the capacity must be above 0, it is %v", l.Capacity)
	case l.Processes < 1 || l.Processes > 100_000:
		return fmt.Errorf("processes must lie between 1 and 100,000, it is %d", l.Processes)
	}
	return nil
}

// Needs computes it.
func (l Load) Needs() Need {
	const short = 1 // octet of length of a short value
	row := aligned(24+l.Consumer+short+l.Key+short+32+short) + 8 + 8
	keyEntry := aligned(8 + l.Consumer + short + l.Key + short)
	ageEntry := 8 + aligned(l.Consumer+short) + 8

	n := Need{Rows: l.PerSecond * l.Remember.Seconds()}
	full, wal := fullGrowing, float64(walGrowing)
	if l.Random {
		full, wal = fullRandom, walRandom
	}
	perPage := math.Floor((page - pageHead) / (row + pointer))
	n.HeapOctets = n.Rows * page / perPage
	n.KeyOctets = n.Rows * (keyEntry + pointer) / full * inner
	n.AgeOctets = n.Rows * (ageEntry + pointer) / fullGrowing * inner
	n.DiskOctets = (n.HeapOctets + n.KeyOctets + n.AgeOctets) * vacuumRoom

	n.WALPerSecond = l.PerSecond * (row + keyEntry + ageEntry + wal + walPurged)
	day := (24 * time.Hour).Seconds()
	if l.Random { // each leaf page is touched anew between two checkpoints, or as many as there are messages
		leaves, hits := n.KeyOctets/page, l.PerSecond*checkpoint.Seconds()
		n.ImagesPerDay = leaves * (1 - math.Exp(-hits/leaves)) * page * full * day / checkpoint.Seconds()
	}
	n.WALPerDay = n.WALPerSecond*day + n.ImagesPerDay

	// What is hot: the whole index of keys if they come in no order, else the rows of ten minutes; and at the other end, what is purged.
	recent := min(1, (10*time.Minute).Seconds()/l.Remember.Seconds()) * 2
	n.HotOctets = (n.HeapOctets + n.AgeOctets) * min(1, recent)
	if l.Random {
		n.HotOctets += n.KeyOctets
	} else {
		n.HotOctets += n.KeyOctets * min(1, recent)
	}

	n.InHand = l.PerSecond * (l.Handler + roundTrips).Seconds()
	n.Connections = int(math.Ceil(2*n.InHand)) + 3*l.Processes // half of each pool; housekeeping and presence of each process
	n.Cells = int(math.Ceil(l.PerSecond / l.Capacity))
	return n
}
