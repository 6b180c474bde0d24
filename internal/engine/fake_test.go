package engine_test

import (
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A fake server speaks enough of PostgreSQL's protocol to return its version. answer answers other
// queries.
type fake struct {
	version string
	answer  func(sql string) (columns []string, values []string, failure *pgproto3.ErrorResponse)
}

// connect starts the server and connects to it.
func (f fake) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for client, err := l.Accept(); err == nil; client, err = l.Accept() {
			go f.serve(client)
		}
	}()
	conn, err := pgx.Connect(t.Context(), "postgres://any@"+l.Addr().String()+"/any?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func (f fake) serve(client net.Conn) {
	defer client.Close()
	b := pgproto3.NewBackend(client, client)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	questions := map[string]string{} // by statement name
	var asked string
	failed := false // skip everything up to Sync
	for b.Flush() == nil {
		message, err := b.Receive()
		if err != nil {
			return
		}
		_, sync := message.(*pgproto3.Sync)
		if failed && !sync {
			continue
		}
		switch m := message.(type) {
		case *pgproto3.Parse:
			questions[m.Name] = m.Query
			if _, _, failure := f.ask(m.Query); failure != nil {
				failed = true
				b.Send(failure)
				continue
			}
			b.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Describe:
			columns, _, _ := f.ask(questions[m.Name])
			b.Send(&pgproto3.ParameterDescription{})
			b.Send(described(columns))
		case *pgproto3.Bind:
			asked = questions[m.PreparedStatement]
			b.Send(&pgproto3.BindComplete{})
		case *pgproto3.Execute:
			_, values, _ := f.ask(asked)
			row := &pgproto3.DataRow{}
			for _, v := range values {
				row.Values = append(row.Values, []byte(v))
			}
			b.Send(row)
			b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		case *pgproto3.Close:
			b.Send(&pgproto3.CloseComplete{})
		case *pgproto3.Sync:
			failed = false
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		case *pgproto3.Terminate:
			return
		}
	}
}

func (f fake) ask(sql string) (columns, values []string, failure *pgproto3.ErrorResponse) {
	if strings.Contains(sql, "version()") {
		return []string{"text"}, []string{f.version}, nil
	}
	return f.answer(sql)
}

// described returns the description of columns with the given types.
func described(types []string) *pgproto3.RowDescription {
	oids := map[string]uint32{"text": 25, "int4": 23, "bool": 16}
	d := &pgproto3.RowDescription{}
	for _, name := range types {
		d.Fields = append(d.Fields, pgproto3.FieldDescription{Name: []byte(name), DataTypeOID: oids[name], DataTypeSize: -1, TypeModifier: -1})
	}
	return d
}
