//! The stacked work chart as SVG: who uses the backends, second by second.

use std::fmt::Write;

use crate::world::Figures;

/// One run drawn: each tenant's work stacked against the dashed line of what the backends can do, the red line of what waits, and
/// a mark where requests were refused. `capacity_per_s` is in tokens of the pool's work.
#[must_use]
pub fn svg(title: &str, figures: &Figures, capacity_per_s: f64) -> String {
    let timeline = &figures.timeline;
    let seconds = timeline.work_millis.len().max(1);
    let tops = timeline.work_millis.iter().map(|second| second.iter().sum::<u64>() as f64 / 1_000.0);
    let most = tops.fold(capacity_per_s, f64::max).max(1.0) * 1.05;
    let x = |second: usize| LEFT + WIDTH * second as f64 / seconds as f64;
    let y = |work: f64| TOP + HEIGHT * (1.0 - work / most);
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = write!(svg, "{}", head(title));
    let mut floor = vec![0.0; seconds];
    for (tenant, entry) in figures.tenants.iter().enumerate() {
        let ceiling: Vec<f64> = floor
            .iter()
            .zip(&timeline.work_millis)
            .map(|(floor, second)| floor + second[tenant] as f64 / 1_000.0)
            .collect();
        let outline = area(&floor, &ceiling, x, y);
        let (colour, name) = (COLOURS[tenant % COLOURS.len()], escaped(&entry.name));
        let _ =
            writeln!(svg, r#"<polygon points="{outline}" fill="{colour}"><title>{name}</title></polygon>"#);
        let legend = TOP + 14.0 + 18.0 * tenant as f64;
        let left = LEFT + WIDTH + 12.0;
        let _ = writeln!(
            svg,
            r#"<rect x="{left:.0}" y="{:.0}" width="12" height="12" fill="{colour}"/><text x="{:.0}" y="{legend:.0}">{name}</text>"#,
            legend - 10.0,
            left + 18.0
        );
        floor = ceiling;
    }
    let line = y(capacity_per_s);
    let _ = writeln!(
        svg,
        r#"<line x1="{LEFT}" x2="{}" y1="{line:.1}" y2="{line:.1}" stroke="currentColor" stroke-dasharray="6 4"><title>capacity</title></line>"#,
        LEFT + WIDTH
    );
    draw_queue(&mut svg, &timeline.waiting, x);
    for (second, refused) in timeline.refused.iter().enumerate().filter(|(_, refused)| **refused > 0) {
        let _ = writeln!(
            svg,
            r##"<circle cx="{:.1}" cy="{:.1}" r="{:.1}" fill="#c0392b" fill-opacity="0.7"><title>{refused} refused at {second} s</title></circle>"##,
            x(second),
            TOP - 10.0,
            (2.0 + f64::from(*refused).sqrt()).min(9.0)
        );
    }
    let _ = writeln!(
        svg,
        r#"<text x="{LEFT}" y="{:.0}">0 s</text><text x="{:.0}" y="{:.0}" text-anchor="end">{seconds} s</text></svg>"#,
        TOP + HEIGHT + 18.0,
        LEFT + WIDTH,
        TOP + HEIGHT + 18.0
    );
    svg
}

fn head(title: &str) -> String {
    let (width, height) = (LEFT + WIDTH + 150.0, TOP + HEIGHT + 30.0);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" role="img" font-family="sans-serif" font-size="13" fill="currentColor" color="#333"><title>{title}</title><rect width="100%" height="100%" fill="#fff"/><text x="{LEFT}" y="18" font-size="15">{title}</text>
"##,
        title = escaped(title)
    )
}

/// Along the ceiling and back along the floor.
fn area(floor: &[f64], ceiling: &[f64], x: impl Fn(usize) -> f64, y: impl Fn(f64) -> f64) -> String {
    let along = ceiling.iter().enumerate();
    let back = floor.iter().enumerate().rev();
    let points = along.chain(back).map(|(second, work)| format!("{:.1},{:.1}", x(second), y(*work)));
    points.collect::<Vec<_>>().join(" ")
}

fn draw_queue(svg: &mut String, waiting: &[u32], x: impl Fn(usize) -> f64) {
    let longest = waiting.iter().copied().max().unwrap_or(0);
    if longest == 0 {
        return;
    }
    let height = |waits: u32| TOP + HEIGHT * (1.0 - f64::from(waits) / f64::from(longest) * QUEUE_PART);
    let points: Vec<String> =
        (0..).zip(waiting).map(|(second, waits)| format!("{:.1},{:.1}", x(second), height(*waits))).collect();
    let _ = writeln!(
        svg,
        r##"<polyline points="{}" fill="none" stroke="#c0392b" stroke-width="2"><title>waiting, at most {longest}</title></polyline>"##,
        points.join(" ")
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const LEFT: f64 = 20.0;
const TOP: f64 = 50.0;
const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 300.0;
/// The longest queue reaches so much of the height.
const QUEUE_PART: f64 = 0.9;
const COLOURS: [&str; 8] =
    ["#4e79a7", "#76b7b2", "#59a14f", "#9c755f", "#edc948", "#b07aa1", "#f28e2b", "#bab0ac"];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::svg;
    use crate::reference::{self, Switches};
    use crate::world;

    #[test]
    fn a_chart_has_an_area_for_each_tenant_and_escapes_its_title() {
        let policy = Arc::new(reference::policy(|_| Default::default()));
        let switches = Switches { agent: true, ..Switches::default() };
        let figures = world::run(reference::setup(switches, 1, policy)).unwrap().figures;
        let chart = svg("a < b & \"c\"", &figures, 74_074.0);
        assert_eq!(chart.matches("<polygon").count(), 6);
        assert!(chart.contains("a &lt; b &amp; &quot;c&quot;") && chart.ends_with("</svg>\n"), "{chart}");
        assert_eq!(chart.matches("<polyline").count(), 1, "the queue");
    }
}
