//! Real earthquakes as records of a simulated upstream: `GLEANER_QUAKES=FILE`, or the 300 that are here.

use std::path::Path;

use gleaner::clock::Timestamp;
use serde_json::Value;

use super::world::{Item, Tombstone};

/// A record of the feed.
pub struct Quake {
    /// Its key.
    pub name: String,
    /// Its real update time, in seconds since 1970.
    pub updated: i64,
    /// Its JSON, with the update time still to be filled in.
    pub value: String,
}

/// What the feed has, by key: the place of a quake in it is its number in the world.
pub fn load() -> Vec<Quake> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/earthquakes.json");
    let file = std::env::var_os("GLEANER_QUAKES").map_or(here, Into::into);
    let feed: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut quakes: Vec<Quake> = feed["features"]
        .as_array()
        .unwrap()
        .iter()
        .map(|feature| {
            let updated = feature["properties"]["updated"].as_i64().unwrap() / 1000;
            let mut feature = feature.clone();
            feature["properties"]["updated"] = 0.into();
            Quake {
                name: feature["id"].as_str().unwrap().to_owned(),
                updated,
                value: feature.to_string(),
            }
        })
        .collect();
    quakes.sort_by(|one, other| one.name.cmp(&other.name));
    quakes
}

/// As the feed writes it.
pub fn write(_: u32, item: &Item) -> String {
    let updated = format!("\"updated\":{}", item.updated * 1000);
    let text = item.value.replacen("\"updated\":0", &updated, 1);
    if item.gone != Some(Tombstone::Listed) {
        return text;
    }
    let mut feature: Value = serde_json::from_str(&text).unwrap();
    feature["properties"]["status"] = "deleted".into();
    feature.to_string()
}

/// The same quake after somebody looked at it again.
pub fn revised(value: &str, revision: u64) -> String {
    let mut feature: Value = serde_json::from_str(value).unwrap();
    let magnitude = feature["properties"]["mag"].as_f64().unwrap_or(1.0);
    let magnitude = ((magnitude * 10.0).round() + 1.0) / 10.0;
    feature["properties"]["mag"] = magnitude.into();
    feature["properties"]["nst"] = revision.into();
    feature.to_string()
}

/// What it says, whenever that was.
pub fn meaning(body: &str) -> Value {
    let mut feature: Value = serde_json::from_str(body).unwrap();
    feature["properties"]["updated"] = Value::Null;
    feature
}

/// Its own update time as the feed's parameters take one.
pub fn instant(feature: &Value) -> Timestamp {
    Timestamp::from_millisecond(feature["properties"]["updated"].as_i64().unwrap()).unwrap()
}
