package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/pkg/client"
)

func stockCommand() *cobra.Command {
	var (
		admin        cli.Admin
		item         client.Goods
		choice       client.Choice
		group, fence bool
		starts, ends string
	)
	cmd := &cobra.Command{
		Use:   "stock",
		Short: "Put an item on sale where it is not on sale yet, correct its stock, or close its sale",
		Long: "Put an item on sale, through the admin API, where it is not on sale yet. Where it is, it keeps the\n" +
			"stock, the limit and the strategy that it has, so that this may be run at every start.",
		Example: "  stockd stock --goods 1 --units 5000 --token-file admin.token\n" +
			"  stockd stock --goods 1 --units 5000 --per-user 2 --strategy redis-stock --token-file admin.token",
	}
	flags := cmd.Flags()
	admin.AddFlags(cmd.PersistentFlags(), configured("STOCKD_ADMIN_LISTEN", "127.0.0.1:8081"))
	flags.Int64Var(&item.ID, "goods", 1, "item to put on sale")
	flags.Int64Var(&item.Stock, "units", 5000, "units that there are to sell")
	flags.Int64Var(&item.PerUser, "per-user", 0, "most units that one user_id may buy; 0 sets no limit (default: deduct.per_user)")
	flags.StringVar(&choice.Strategy, "strategy", "", "strategy of its purchases that name none (default: deduct.strategy)")
	flags.BoolVar(&group, "group", false, "commit all waiting purchases of it in one transaction where a purchase does not say (default: deduct.group)")
	flags.BoolVar(&fence, "fence", false, "check the token of its lock where a purchase does not say (default: deduct.fence)")
	flags.StringVar(&starts, "starts-at", "", "time from which on it is sold, by the clock of the database, such as 2026-11-27T20:00:00Z")
	flags.StringVar(&ends, "ends-at", "", "time until which it is sold")
	cmd.AddCommand(correctCommand(&admin), closeCommand(&admin), lineCommand(&admin), importCommand(&admin), exportCommand(&admin))
	cmd.PreRunE = func(*cobra.Command, []string) error { return checkItem(item) }
	return admin.Command(cmd, func(cmd *cobra.Command, c client.Client, _ []string) (err error) {
		if flags.Changed("group") {
			choice.Group = &group
		}
		if flags.Changed("fence") {
			choice.Fence = &fence
		}
		created := client.NewItem{GoodsID: item.ID, Stock: item.Stock, Choice: &choice}
		created.StartsAt, err = parseTime(starts)
		if err == nil {
			created.EndsAt, err = parseTime(ends)
		}
		if err != nil {
			return cli.UsageError{Err: fmt.Errorf("--starts-at and --ends-at: %w", err)}
		}
		if flags.Changed("per-user") {
			created.PerUser = &item.PerUser
		}
		done, err := putOnSale(cmd.Context(), c, created)
		if err != nil {
			return err
		}
		return cli.Print(cmd, "%s", done)
	})
}

// parseTime reads a time; nil: it is not given.
func parseTime(text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	return &at, err
}

func closeCommand(admin *cli.Admin) *cobra.Command {
	var goods int64
	cmd := &cobra.Command{
		Use:   "close",
		Short: "Close the sale of an item: nothing of it is sold after that",
		Long: "Close the sale of an item, through the admin API. After it nothing of the item is sold or held, at any replica,\n" +
			"and what is held can still be paid. It prints the audit, and may be run again.",
		Example: "  stockd stock close --goods 1 --token-file admin.token\n" +
			"  stockd stock close --goods 1 --admin-url http://10.0.0.5:8081 --token-file admin.token",
	}
	cmd.Flags().Int64Var(&goods, "goods", 1, "item to close")
	return admin.Command(cmd, func(cmd *cobra.Command, c client.Client, _ []string) error {
		closed, err := c.CloseSale(cmd.Context(), goods)
		if err != nil {
			return err
		}
		a := closed.Audit
		return cli.Print(cmd, "item %d is closed since %s: %d units sold in %d orders, %d held, %d left, consistent: %t",
			goods, closed.EndsAt.Format(time.RFC3339), a.Sold, a.Orders, a.Held, a.Stock, a.Clean)
	})
}

func lineCommand(admin *cli.Admin) *cobra.Command {
	var goods int64
	cmd := &cobra.Command{
		Use:   "line",
		Short: "Count the line of an item that has a waiting room",
		Example: "  stockd stock line --goods 1 --token-file admin.token\n" +
			"  stockd stock line --goods 1 --admin-url http://10.0.0.5:8081 --token-file admin.token",
	}
	cmd.Flags().Int64Var(&goods, "goods", 1, "item that buyers wait for")
	return admin.Command(cmd, func(cmd *cobra.Command, c client.Client, _ []string) error {
		line, err := c.CountLine(cmd.Context(), goods)
		if err != nil {
			return err
		}
		wait := "unknown"
		if line.Wait > 0 || line.Waiting == 0 {
			wait = (time.Duration(line.Wait) * time.Second).String()
		}
		return cli.Print(cmd, "item %d: waiting %d, admitted %d; since it began %d admissions, and %d left; wait of a new buyer: %s",
			goods, line.Waiting, line.Admitted, line.Admissions, line.Left, wait)
	})
}

func correctCommand(admin *cli.Admin) *cobra.Command {
	var (
		goods, counted int64
		to             client.Correction
	)
	cmd := &cobra.Command{
		Use:   "correct",
		Short: "Correct the stock of an item: to what was counted, or by a difference",
		Long: "Correct the stock of an item, through the admin API: to what was counted, or by a difference. Count what is\n" +
			"for sale and what reservations hold, and leave out what is sold, also where it is not shipped yet.",
		Example: "  stockd stock correct --goods 1 --counted 4812 --reason inventory --token-file admin.token\n" +
			"  stockd stock correct --goods 1 --by=-5 --reason damage --key damage-17 --token-file admin.token",
	}
	flags := cmd.Flags()
	flags.Int64Var(&goods, "goods", 1, "item to correct")
	flags.Int64Var(&counted, "counted", 0, "units that there are, for sale and held")
	flags.Int64Var(&to.By, "by", 0, "units that there are more; negative where there are fewer")
	flags.StringVar(&to.Reason, "reason", "", fmt.Sprintf("why, in up to %d characters; the feed has it", stock.MaxReason))
	flags.StringVar(&to.RequestID, "key", "", "correct under this key once, however often it is sent")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case flags.Changed("counted") == flags.Changed("by"):
			return cli.UsageError{Err: errors.New("one of --counted and --by must be given")}
		case to.Reason == "":
			return cli.UsageError{Err: errors.New("--reason must be given")}
		}
		return nil
	}
	return admin.Command(cmd, func(cmd *cobra.Command, c client.Client, _ []string) error {
		if flags.Changed("counted") {
			to.Counted = &counted
		}
		done, err := c.Correct(cmd.Context(), goods, to)
		if err != nil {
			return err
		}
		return cli.Print(cmd, "item %d was corrected by %d, and has %d units to sell", goods, done.By, done.Stock)
	})
}

func checkItem(item client.Goods) error {
	if item.ID < 1 || item.Stock < 0 || item.Stock > stock.MaxStock {
		return cli.UsageError{Err: fmt.Errorf("--goods must be at least 1 and --units 0 to %d", int64(stock.MaxStock))}
	}
	if item.PerUser < 0 || item.PerUser > stock.MaxPerUser {
		return cli.UsageError{Err: fmt.Errorf("--per-user must be 0 to %d", stock.MaxPerUser)}
	}
	return nil
}

// putOnSale creates first and reads afterwards: of two that do so at the same time, one
// creates the item and the other finds it.
func putOnSale(ctx context.Context, c client.Client, item client.NewItem) (done string, err error) {
	_, created := c.Create(ctx, item)
	if created == nil {
		return fmt.Sprintf("item %d is on sale with %d units", item.GoodsID, item.Stock), nil
	}
	found, err := c.Goods(ctx, item.GoodsID)
	if errors.Is(err, client.ErrUnknownGoods) {
		return "", created
	}
	if err != nil {
		return "", errors.Join(created, err)
	}
	done = fmt.Sprintf("item %d was on sale already, and has %d units left", item.GoodsID, found.Stock)
	for _, c := range found.Changes {
		done += fmt.Sprintf("\n%s: %s %s", c.Kind, c.State, c.Error)
	}
	return done, nil
}
