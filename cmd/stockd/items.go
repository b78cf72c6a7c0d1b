package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/pkg/client"
)

// A request has this many items at the most, and so many bytes of them.
const (
	maxInRequest   = 100
	bytesInRequest = 12 << 10
)

// itemLine is an item of a file, as a JSON object.
type itemLine struct {
	at     int // the line, from 1
	fields json.RawMessage
}

func importCommand(admin *cli.Admin) *cobra.Command {
	return admin.Command(&cobra.Command{
		Use:   "import FILE",
		Short: "Put the items of a file on sale, in CSV or in lines of JSON",
		Long: "Put the items of a file on sale, through the admin API. CSV begins with the names of its columns; a line of\n" +
			"JSON is an object. The fields are those of POST /goods: goods_id and stock, and per_user, strategy, group,\n" +
			"fence, max_quantity, starts_at, ends_at. An item that exists gets what is given of them, and keeps the stock that it has.\n" +
			"Importing the file again, such as after an interruption, changes nothing twice.",
		Example: "  stockd stock import items.csv --token-file admin.token\n" +
			"  stockd stock import items.jsonl --admin-url https://stockd.internal:8081 --token-file admin.token",
		Args: oneArg("FILE"),
	}, func(cmd *cobra.Command, c client.Client, args []string) error {
		content, err := os.ReadFile(args[0])
		if err != nil {
			return cli.UsageError{Err: err}
		}
		items, err := readItems(content)
		if err != nil {
			return cli.UsageError{Err: fmt.Errorf("%s: %w", args[0], err)}
		}
		progress := cli.NewProgress(cmd.ErrOrStderr(), 0)
		done, err := importItems(cmd.Context(), c, items, progress, cmd.OutOrStdout())
		progress.End()
		_ = cli.Print(cmd, "%d created, %d changed, %d the same, %d failed, of %d", // the error below is worth more
			done["created"], done["changed"], done["same"], done["failed"], len(items))
		if err == nil && done["failed"] > 0 {
			err = errors.New("not every line was imported")
		}
		return err
	})
}

// importItems sends the items in requests that are small enough, and prints each that fails.
func importItems(ctx context.Context, c client.Client, items []itemLine, progress cli.Progress, out io.Writer) (done map[string]int, err error) {
	done = make(map[string]int)
	requests := split(items)
	progress.Begin(len(requests))
	for _, request := range requests {
		fields := make([]any, len(request))
		for i, item := range request {
			fields[i] = item.fields
		}
		imported, err := c.Import(ctx, fields...)
		if err != nil {
			return done, fmt.Errorf("lines %d to %d: %w; importing the file again goes on", request[0].at, request[len(request)-1].at, err)
		}
		for _, line := range imported {
			if done[line.Result]++; line.Problem != nil {
				if _, err := fmt.Fprintf(out, "line %d: %v\n", request[line.Line-1].at, line.Problem); err != nil {
					return done, err
				}
			}
		}
		progress.Step(fmt.Sprintf("line %d", request[len(request)-1].at), 0)
	}
	return done, nil
}

func split(items []itemLine) (requests [][]itemLine) {
	size := bytesInRequest
	for i, item := range items {
		if size += len(item.fields) + 1; size > bytesInRequest || len(requests[len(requests)-1]) == maxInRequest {
			requests, size = append(requests, items[i:i]), len(item.fields)+1
		}
		last := len(requests) - 1
		requests[last] = requests[last][:len(requests[last])+1]
	}
	return requests
}

func readItems(content []byte) (items []itemLine, err error) {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	if !bytes.HasPrefix(bytes.TrimSpace(content), []byte("{")) {
		return readItemsCSV(content)
	}
	at := 0
	for line := range bytes.Lines(content) {
		at++
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
		case !json.Valid(line):
			return nil, fmt.Errorf("line %d is no JSON", at)
		default:
			items = append(items, itemLine{at, line})
		}
	}
	return items, nil
}

func readItemsCSV(content []byte) (items []itemLine, err error) {
	r := csv.NewReader(bytes.NewReader(content))
	names, _ := r.Read() // where it fails, there are none
	if !slices.Contains(names, "goods_id") {
		return nil, errors.New("the first line must have the names of the columns, goods_id among them")
	}
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return nil, err
		}
		fields := make(map[string]any)
		for i, cell := range cells {
			if cell = strings.TrimSpace(cell); cell != "" { // otherwise the field is not given
				fields[strings.TrimSpace(names[i])] = cellValue(cell)
			}
		}
		object, err := json.Marshal(fields)
		if err != nil {
			return nil, err
		}
		at, _ := r.FieldPos(0)
		items = append(items, itemLine{at, object})
	}
}

// cellValue is a cell as JSON has it. No strategy is a number, or true.
func cellValue(cell string) any {
	if _, err := strconv.ParseInt(cell, 10, 64); err == nil {
		return json.Number(cell)
	}
	if cell == "true" || cell == "false" {
		return cell == "true"
	}
	return cell
}

func exportCommand(admin *cli.Admin) *cobra.Command {
	var after int64
	cmd := &cobra.Command{
		Use:   "export",
		Short: "List all items, as lines of JSON that stockd stock import reads",
		Long: "List all items by their ids, through the admin API, as lines of JSON that stockd stock import reads. After an\n" +
			"interruption, --after goes on behind the last goods_id.",
		Example: "  stockd stock export --token-file admin.token > items.jsonl\n" +
			"  stockd stock export --after 4711 --token-file admin.token >> items.jsonl",
	}
	cmd.Flags().Int64Var(&after, "after", 0, "goods_id to go on after")
	return admin.Command(cmd, func(cmd *cobra.Command, c client.Client, _ []string) error {
		lines := json.NewEncoder(cmd.OutOrStdout())
		for goods, err := range c.Items(cmd.Context(), after) {
			if err != nil {
				return err
			}
			item := client.NewItem{GoodsID: goods.ID, Stock: goods.Stock, PerUser: &goods.PerUser, StartsAt: goods.StartsAt, EndsAt: goods.EndsAt}
			if starts, ends := item.StartsAt, item.EndsAt; starts != nil && ends != nil && !ends.After(*starts) {
				item.StartsAt = nil // closed before it began, it does not begin where it is imported
			}
			item.Choice = &client.Choice{Strategy: goods.Strategy, Group: goods.Group, Fence: goods.Fenced}
			if goods.MaxQuantity != nil {
				item.MaxQuantity = *goods.MaxQuantity
			}
			if err := lines.Encode(item); err != nil {
				return err
			}
		}
		return nil
	})
}
