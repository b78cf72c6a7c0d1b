package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// mutant is one small change of the code. File, Func and Change identify it: a line
// number would not survive the next edit.
type mutant struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Func   string `json:"func"`
	Change string `json:"change"`
	// Reason is why it may live, for those that are listed.
	Reason string `json:"reason,omitempty"`
	id     int
}

func (m mutant) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s: %s", m.File, m.Func, m.Change))
}

// planter puts every mutant of a file into it, each behind a condition of its own: one
// build has them all, the compiler has seen them all, and a variable of the
// environment chooses one.
type planter struct {
	fset    *token.FileSet
	info    *types.Info
	pkg     *types.Package
	name    string // of the file, in the repository
	source  []byte
	file    *ast.File
	within  string // the function
	first   int    // number of the first mutant, less one
	mutants []mutant
	edits   []edit
}

type edit struct {
	at, rank int // where several edits meet, the lower rank comes first
	text     string
}

func (p *planter) offset(at token.Pos) int { return p.fset.Position(at).Offset }
func (p *planter) text(from, to token.Pos) string {
	return string(p.source[p.offset(from):p.offset(to)])
}

// add notes a mutant, and returns the condition under which it is at work.
func (p *planter) add(at token.Pos, from, to string) string {
	change := strings.TrimSpace(short(from) + " → " + short(to))
	id := p.first + len(p.mutants) + 1
	p.mutants = append(p.mutants, mutant{p.name, p.fset.Position(at).Line, p.within, change, "", id})
	return fmt.Sprintf("mutant__(%d)", id)
}

// short is a change on one line.
func short(s string) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > 90 {
		return string(r[:87]) + "..."
	}
	return string(r)
}

// wrap opens after the wraps around it, and closes before them: an outer node is wrapped first.
func (p *planter) wrap(n ast.Node, before, after string) {
	rank := len(p.edits) + 1
	p.edits = append(p.edits, edit{p.offset(n.Pos()), rank, before}, edit{p.offset(n.End()), -rank, after})
}

// swap evaluates another expression of the same type in an expression's stead.
func (p *planter) swap(e ast.Expr, kind, other string) {
	on := p.add(e.Pos(), p.text(e.Pos(), e.End()), other)
	p.wrap(e, fmt.Sprintf("(func() %s { if %s { return %s }; return ", kind, on, other), " }())")
}

// plant is the file with its mutants.
func (p *planter) plant() []byte {
	for _, d := range p.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				p.within = functionName(d)
				ast.Inspect(d.Body, p.visit)
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				p.within = "var"
				ast.Inspect(d, p.visit)
			}
		}
	}
	slices.SortFunc(p.edits, func(a, b edit) int { return cmp.Or(a.at-b.at, a.rank-b.rank) })
	var out strings.Builder
	last := 0
	for _, e := range p.edits {
		out.Write(p.source[last:e.at])
		out.WriteString(e.text)
		last = e.at
	}
	out.Write(p.source[last:])
	return []byte(out.String())
}

func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*"), "[")
	return receiver + "." + f.Name.Name
}

func (p *planter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.BlockStmt:
		p.statements(n.List)
	case *ast.CaseClause:
		p.statements(n.Body)
	case *ast.CommClause:
		p.statements(n.Body)
	case *ast.IfStmt:
		p.condition(n.Cond)
	case *ast.BinaryExpr:
		p.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			p.swap(n, "bool", p.text(n.X.Pos(), n.X.End()))
		}
	case *ast.ReturnStmt:
		p.results(n)
	}
	return true
}

// condition is negated where no operator within it is.
func (p *planter) condition(e ast.Expr) {
	switch e.(type) {
	case *ast.Ident, *ast.CallExpr, *ast.SelectorExpr, *ast.IndexExpr:
		p.swap(e, "bool", "!"+p.text(e.Pos(), e.End()))
	}
}

// operators lists what an operator may be taken for.
func operators() map[token.Token][]token.Token {
	return map[token.Token][]token.Token{
		token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
		token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
		token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
		token.LAND: {token.LOR}, token.LOR: {token.LAND},
		token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.MUL},
	}
}

func (p *planter) binary(e *ast.BinaryExpr) {
	known := p.info.Types[e]
	if known.Type == nil || known.Value != nil { // a constant may stand where no function may
		return
	}
	kind := "bool"
	if slices.Contains([]token.Token{token.ADD, token.SUB, token.MUL, token.QUO, token.REM}, e.Op) {
		basic, ok := known.Type.Underlying().(*types.Basic)
		if !ok || basic.Info()&types.IsNumeric == 0 {
			return
		}
		kind = p.kind(known.Type)
	}
	if kind == "" {
		return
	}
	for _, op := range operators()[e.Op] {
		end := e.OpPos + token.Pos(len(e.Op.String()))
		p.swap(e, kind, p.text(e.Pos(), e.OpPos)+op.String()+p.text(end, e.End()))
	}
}

// kind is a type as the file may write it, or empty.
func (p *planter) kind(t types.Type) string {
	ok := true
	name := types.TypeString(t, func(other *types.Package) string {
		if other == p.pkg {
			return ""
		}
		for _, i := range p.file.Imports {
			if strings.Trim(i.Path.Value, `"`) == other.Path() && i.Name == nil {
				return other.Name()
			}
		}
		ok = false
		return ""
	})
	if !ok || strings.HasPrefix(name, "untyped") {
		return ""
	}
	return name
}

// results loses errors, and negates a constant truth.
func (p *planter) results(r *ast.ReturnStmt) {
	for _, e := range r.Results {
		known := p.info.Types[e]
		text := p.text(e.Pos(), e.End())
		switch {
		case text == "true" || text == "false":
			on := p.add(e.Pos(), "return "+text, "return !"+text)
			p.wrap(e, "(", " != "+on+")")
		case text != "nil" && known.Type != nil && types.Identical(known.Type, types.Universe.Lookup("error").Type()):
			p.swap(e, "error", "nil")
		}
	}
}

// statements leaves out one that does something.
func (p *planter) statements(list []ast.Stmt) {
	for _, s := range list {
		text := p.text(s.Pos(), s.End())
		switch s := s.(type) {
		case *ast.ExprStmt:
			if strings.HasPrefix(text, "panic(") {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || strings.HasPrefix(text, "_ =") {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok != token.CONTINUE {
				continue
			}
		case *ast.DeferStmt:
			if freeing(text) {
				continue
			}
		case *ast.IncDecStmt, *ast.GoStmt, *ast.SendStmt:
		default:
			continue
		}
		p.wrap(s, "if !"+p.add(s.Pos(), text, "")+" { ", " }")
	}
}

// freeing reports whether a statement does nothing that could be noticed but to give back
// memory and timers early.
func freeing(text string) bool {
	return slices.Contains([]string{"defer cancel()", "defer stop()", "defer timer.Stop()", "defer tick.Stop()"}, text)
}
