//! The figures of a source, place by place.

use super::Show;
use crate::blocks::{bullets, table_block};
use crate::cells::{or_dash, row_cells};
use crate::columns::main_loop;
use common::metric::Metric;
use document::{Block, Cell, Table, TableRow, row};
use results::judge::best;
use results::judge::blocks;
use results::judge::list::{distinct, grouped};
use results::table::{Row, Source};

impl Show<'_> {
    /// Returns the figures of these sources, place by place, the fastest first; of kernels, where
    /// no stage is named, those of the best variants.
    pub(super) fn measured(&self, sources: &[Source], metrics: &[Metric]) -> Vec<Block> {
        let mut rows = Vec::new();
        for row in self.rows_by_place(sources) {
            let mut cells = row_cells(row, metrics);
            if matches!(row.source(), Source::Ptxas | Source::Kernel) {
                cells.extend(self.build_cells(row));
            }
            rows.push(cells);
        }
        if rows.is_empty() {
            return vec![];
        }
        let mut blocks = table_block(Table::from_rows(rows).filled());
        blocks.extend(bullets(self.remarks(sources[0])));
        blocks
    }

    fn rows_by_place(&self, sources: &[Source]) -> Vec<&Row> {
        let mut shown = Vec::new();
        for row in self.report.view.table.rows() {
            if sources.contains(&row.source()) && self.shows(row) {
                shown.push((row.place(), row));
            }
        }
        let mut sorted = Vec::new();
        for mut group in grouped(shown) {
            group
                .values
                .sort_by(|a, b| best::p50(a).total_cmp(&best::p50(b)));
            sorted.extend(group.values);
        }
        sorted
    }

    fn shows(&self, row: &Row) -> bool {
        let view = &self.report.view;
        let stage = row.subject.stage();
        match row.source() {
            Source::Peers => true,
            Source::ComputeSanitizer => self.covers(stage),
            Source::Gpu if best::withheld(view, row).is_some() || !row.is_latency() => false,
            Source::Emulator if row.problem().is_none() => false,
            _ if self.stages.is_empty() => self.is_best(row),
            _ => self.covers(stage),
        }
    }

    fn is_best(&self, row: &Row) -> bool {
        let view = &self.report.view;
        match view.stage(row.subject.stage()) {
            Some(stage) => best::subject(view, stage) == row.subject,
            None => false,
        }
    }

    fn build_cells(&self, row: &Row) -> TableRow {
        let table = &self.report.view.table;
        let blocks = row
            .value(Metric::Occupancy)
            .and_then(|occupancy| blocks::per_sm(table, row, occupancy));
        row! {
            "blocks per SM" => or_dash(blocks.map(|number| Cell::Figure(number.to_string()))),
            "main loop" => or_dash(main_loop(row)),
        }
    }

    /// Returns which variants are shown, and the tools that measured them.
    fn remarks(&self, source: Source) -> Vec<String> {
        let view = &self.report.view;
        let mut remarks = Vec::new();
        let has_all = matches!(source, Source::Peers | Source::ComputeSanitizer);
        if !has_all && self.stages.is_empty() {
            remarks.push(
                "Best variants only; `--stage STAGE` shows every variant of a stage.".to_string(),
            );
        }
        let sessions = view.table.sessions.values().chain(view.run);
        let mut tools = Vec::new();
        for session in sessions {
            tools.extend(session.tools.get(&source).map(|names| names.join(", ")));
        }
        remarks.extend(distinct(tools));
        remarks
    }
}
