// Package sizing computes what a stream of messages needs of a database: rows, disk, WAL, memory
// and connections. It counts only Pawl's part of a message, its row in pawl.inbox; add your own
// rows. Sizes of tuples follow PostgreSQL's page layout. All other figures are measured.
package sizing

import (
	"fmt"
	"math"
	"time"
)

// A Load is the stream of messages.
type Load struct {
	PerSecond float64       // messages a second
	Remember  time.Duration // the consumer's Retention
	Key       int           // octets of a message's key
	Consumer  int           // octets of the consumer's name
	// Random: keys are unordered, like UUIDs of version 4; else they grow, like UUIDs of version 7.
	Random    bool
	Handler   time.Duration // time of one message, with its statements
	Capacity  float64       // messages a second that one database can process
	Processes int
}

// A Need is the result for a load.
type Need struct {
	Rows       float64 `json:"rows"`
	HeapOctets float64 `json:"heap_octets"`
	KeyOctets  float64 `json:"key_index_octets"`
	AgeOctets  float64 `json:"age_index_octets"`
	// DiskOctets has room for purged rows whose space is not reused yet.
	DiskOctets   float64 `json:"disk_octets"`
	WALPerSecond float64 `json:"wal_octets_per_second"` // of claims and purges, without page images
	// ImagesPerDay is an estimate: pages of the key index, after each checkpoint.
	ImagesPerDay float64 `json:"wal_image_octets_per_day"`
	WALPerDay    float64 `json:"wal_octets_per_day"`
	// HotOctets are the parts of indexes and heap that claims and purges use all the time.
	HotOctets   float64 `json:"hot_octets"`
	InHand      float64 `json:"in_hand"` // messages being handled at a time
	Connections int     `json:"connections"`
	Cells       int     `json:"cells"` // number of databases
}

const (
	page, pageHead = 8192, 24
	pointer        = 4 // line pointer of a tuple

	// Fill factors of leaf pages: 90 % for growing keys, 68 % for unordered ones. Inner pages add 3
	// %. Measured with keys of 36 octets.
	fullGrowing, fullRandom, inner = 0.90, 0.68, 1.03

	// Octets of WAL of one claim with its own commit, without its tuples. Measured on PostgreSQL
	// 15, without page images.
	walGrowing, walRandom = 228, 263
	// Octets of WAL of one purged and vacuumed row. Measured.
	walPurged = 128

	checkpoint = 5 * time.Minute // the default of checkpoint_timeout

	// Autovacuum starts when a fifth of the rows is dead. Until then their space is not reused.
	vacuumRoom = 1.2

	// Round trips of a message besides its handler. Measured on one machine.
	roundTrips = 2 * time.Millisecond
)

func aligned(n int) float64 { return float64((n + 7) / 8 * 8) }

// Validate returns an error about a value out of bounds.
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

// Needs computes the needs of the load.
func (l Load) Needs() Need {
	const short = 1 // length octet of a short value
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
	// each leaf page is written once between two checkpoints, or fewer if there are fewer messages
	if l.Random {
		leaves, hits := n.KeyOctets/page, l.PerSecond*checkpoint.Seconds()
		n.ImagesPerDay = leaves * (1 - math.Exp(-hits/leaves)) * page * full * day / checkpoint.Seconds()
	}
	n.WALPerDay = n.WALPerSecond*day + n.ImagesPerDay

	// Hot are the whole key index if keys are unordered, else the rows of ten minutes. At the other
	// end, the rows to be purged are hot, too.
	recent := min(1, (10*time.Minute).Seconds()/l.Remember.Seconds()) * 2
	n.HotOctets = (n.HeapOctets + n.AgeOctets) * min(1, recent)
	if l.Random {
		n.HotOctets += n.KeyOctets
	} else {
		n.HotOctets += n.KeyOctets * min(1, recent)
	}

	n.InHand = l.PerSecond * (l.Handler + roundTrips).Seconds()
	// half of each pool; housekeeping and presence of each process
	n.Connections = int(math.Ceil(2*n.InHand)) + 3*l.Processes
	n.Cells = int(math.Ceil(l.PerSecond / l.Capacity))
	return n
}
