//! What lies where in a struct, read from the debug information that the C++ compiler writes of it.

use addr2line::gimli::{
    self, AttributeValue, DebuggingInformationEntry as Entry, Dwarf, EndianSlice, LittleEndian,
    SectionId, Unit, UnitOffset, constants as dw,
};
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One array, or one value, of a struct or of a struct within it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buffer {
    /// `ring[4].k`: of arrays of structs with their lengths.
    pub name: String,
    /// The type of one element: `half`, `Mbarrier`; of a tile that is declared as bytes the tile's, `BoxTile<F16, 64, 128>`.
    pub element: String,
    /// The array's extents; none for a single value.
    pub extents: Vec<u64>,
    /// Of the first, in bytes from the start.
    pub offset: u64,
    /// Where the structs are an array that it is in: how many there are and how far they lie apart, outermost first.
    pub repeated: Vec<(u64, u64)>,
    /// Of one.
    pub bytes: u64,
    /// What it takes the place of: the first member of its union.
    pub instead_of: Option<String>,
}

/// The layout of one struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub bytes: u64,
    pub buffers: Vec<Buffer>,
}

impl Buffer {
    /// Of all that there are.
    pub fn all_bytes(&self) -> u64 {
        self.bytes
            * self
                .repeated
                .iter()
                .map(|(count, _)| count)
                .product::<u64>()
    }

    /// Where each starts.
    fn starts(&self) -> Vec<u64> {
        self.repeated
            .iter()
            .fold(vec![self.offset], |starts, &(count, apart)| {
                let of = |start: u64| (0..count).map(move |at| start + at * apart);
                starts.into_iter().flat_map(of).collect()
            })
    }
}

impl Layout {
    /// Bytes in which nothing lies.
    pub fn padding(&self) -> u64 {
        let mut is_used = vec![false; self.bytes as usize];
        for buffer in &self.buffers {
            for start in buffer.starts() {
                is_used[start as usize..(start + buffer.bytes) as usize].fill(true);
            }
        }
        is_used.iter().filter(|is_used| !**is_used).count() as u64
    }
}

/// What codes and the bytes of a tile are.
const BYTE: &str = "unsigned char";

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The layouts of the types of all global variables in a linked file, by the variables' names.
pub fn layouts(linked: &[u8]) -> Result<BTreeMap<String, Layout>, String> {
    let file = object::File::parse(linked).map_err(|error| error.to_string())?;
    let section = |id: SectionId| {
        let section = file.section_by_name(id.name());
        match section.map(|section| section.uncompressed_data()) {
            Some(Ok(data)) => Ok(data),
            Some(Err(error)) => Err(error.to_string()),
            None => Ok(Cow::Borrowed(&[][..])),
        }
    };
    let sections = gimli::DwarfSections::load(section)?;
    let dwarf = sections.borrow(|data| EndianSlice::new(data, LittleEndian));
    read(&dwarf).map_err(|error| format!("the debug information is not as expected: {error}"))
}

fn read(dwarf: &Dwarf<Slice<'_>>) -> Result<BTreeMap<String, Layout>, gimli::Error> {
    let (mut layouts, mut units) = (BTreeMap::new(), dwarf.units());
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        let types = Types { dwarf, unit: &unit };
        let root = unit.header.root_offset();
        for entry in types.children(root)? {
            let name = types.name(&entry)?;
            if entry.tag() != dw::DW_TAG_variable || name.is_empty() {
                continue;
            }
            let Some(of) = types.of(&entry)? else {
                continue;
            };
            let mut buffers = Vec::new();
            types.members(&of.entry, &Buffer::default(), &mut buffers)?;
            let bytes = of.bytes;
            layouts.insert(name, Layout { bytes, buffers });
        }
    }
    Ok(layouts)
}

/// A type without names for it and arrays of it.
struct Type<'a> {
    /// What the program calls it.
    name: String,
    /// Of the arrays around it.
    extents: Vec<u64>,
    /// Of one element.
    bytes: u64,
    entry: Entry<Slice<'a>>,
}

struct Types<'a, 'd> {
    dwarf: &'d Dwarf<Slice<'a>>,
    unit: &'d Unit<Slice<'a>>,
}

impl<'a> Types<'a, '_> {
    fn children(&self, of: UnitOffset) -> Result<Vec<Entry<Slice<'a>>>, gimli::Error> {
        let mut tree = self.unit.entries_tree(Some(of))?;
        let (mut children, mut entries) = (tree.root()?.children(), Vec::new());
        while let Some(child) = children.next()? {
            entries.push(child.entry().clone());
        }
        Ok(entries)
    }

    fn name(&self, entry: &Entry<Slice<'a>>) -> Result<String, gimli::Error> {
        Ok(match entry.attr_value(dw::DW_AT_name) {
            Some(value) => self
                .dwarf
                .attr_string(self.unit, value)?
                .to_string_lossy()
                .into_owned(),
            None => String::new(),
        })
    }

    fn number(entry: &Entry<Slice<'a>>, of: gimli::DwAt) -> Option<u64> {
        entry.attr_value(of)?.udata_value()
    }

    /// The type of a variable or member.
    fn of(&self, entry: &Entry<Slice<'a>>) -> Result<Option<Type<'a>>, gimli::Error> {
        let (mut name, mut extents) = (String::new(), Vec::new());
        let mut entry = entry.clone();
        while let Some(AttributeValue::UnitRef(at)) = entry.attr_value(dw::DW_AT_type) {
            entry = self.unit.entry(at)?;
            match entry.tag() {
                dw::DW_TAG_typedef if name.is_empty() => name = self.name(&entry)?,
                dw::DW_TAG_array_type => {
                    // The name of an array is none of its elements.
                    name.clear();
                    for range in self.children(at)? {
                        let count = Self::number(&range, dw::DW_AT_count);
                        let last = Self::number(&range, dw::DW_AT_upper_bound);
                        extents.extend(count.or(last.map(|last| last + 1)));
                    }
                }
                dw::DW_TAG_typedef | dw::DW_TAG_const_type | dw::DW_TAG_volatile_type => {}
                _ => break,
            }
        }
        let Some(bytes) = Self::number(&entry, dw::DW_AT_byte_size) else {
            return Ok(None);
        };
        let own = self.name(&entry)?;
        // Of numbers those that kernels have a word for, and no bytes.
        if entry.tag() != dw::DW_TAG_base_type || name.is_empty() || own == BYTE {
            name = own;
        }
        let name = name
            .replace("attn::", "")
            .replace("(anonymous namespace)::", "")
            .replace("__half", "half");
        Ok(Some(Type {
            name,
            extents,
            bytes,
            entry,
        }))
    }

    /// What a struct or union, or what it inherits, has itself, and where.
    fn fields(&self, of: &Entry<Slice<'a>>) -> Result<Vec<(String, u64, Type<'a>)>, gimli::Error> {
        let mut fields = Vec::new();
        for entry in self.children(of.offset())? {
            let is_one = [dw::DW_TAG_member, dw::DW_TAG_inheritance].contains(&entry.tag());
            if !is_one || entry.attr(dw::DW_AT_external).is_some() {
                continue;
            }
            // In a union there is none.
            let offset = Self::number(&entry, dw::DW_AT_data_member_location).unwrap_or(0);
            if let Some(found) = self.of(&entry)? {
                fields.push((self.name(&entry)?, offset, found));
            }
        }
        Ok(fields)
    }

    /// Adds what lies in a struct or union that is reached as `way` says.
    fn members(
        &self,
        of: &Entry<Slice<'a>>,
        way: &Buffer,
        buffers: &mut Vec<Buffer>,
    ) -> Result<(), gimli::Error> {
        let is_union = of.tag() == dw::DW_TAG_union_type;
        let mut first = None;
        for (name, offset, found) in self.fields(of)? {
            let dot = if way.name.is_empty() || name.is_empty() {
                ""
            } else {
                "."
            };
            let mut to = Buffer {
                name: format!("{}{dot}{name}", way.name),
                offset: way.offset + offset,
                ..way.clone()
            };
            if is_union {
                to.instead_of = first.clone().or(to.instead_of);
                first.get_or_insert(to.name.clone());
            }
            // What has no name has its members named as the struct's own.
            if !name.is_empty() && self.is_whole(&found)? {
                let count: u64 = found.extents.iter().product();
                buffers.push(Buffer {
                    element: found.name,
                    bytes: found.bytes * count,
                    extents: found.extents,
                    ..to
                });
                continue;
            }
            let mut apart = found.bytes * found.extents.iter().product::<u64>();
            for &count in &found.extents {
                apart /= count.max(1);
                to.repeated.push((count, apart));
                to.name += &format!("[{count}]");
            }
            self.members(&found.entry, &to, buffers)?;
        }
        Ok(())
    }

    /// Whether a type is one thing: a number, a struct of some (`RowState`, `uint4`), or a tile, whose bytes are declared as such.
    fn is_whole(&self, found: &Type<'a>) -> Result<bool, gimli::Error> {
        let structs = [
            dw::DW_TAG_structure_type,
            dw::DW_TAG_class_type,
            dw::DW_TAG_union_type,
        ];
        if !structs.contains(&found.entry.tag()) {
            return Ok(true);
        }
        let fields = self.fields(&found.entry)?;
        let is_number = |of: &Type<'a>| of.entry.tag() == dw::DW_TAG_base_type;
        let are_numbers = fields
            .iter()
            .all(|(_, _, of)| is_number(of) && of.extents.is_empty());
        let is_tile = matches!(&fields[..], [(_, _, of)] if of.name == BYTE);
        Ok(!fields.is_empty() && (are_numbers || is_tile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instrument::find;
    use std::process::Command;

    const STRUCTS: &str = "
        #include <cstdint>
        namespace attn { template <class T, int ROWS> struct Tile { static constexpr int N = ROWS; alignas(64) unsigned char bytes[ROWS][4]; }; }
        using Mbarrier = uint64_t;
        namespace {
        struct State { float max, sum; };
        struct Nothing {};
        struct Slot { attn::Tile<float, 8> k; float v[3]; };
        struct Shared : State {
            short q[2][5];
            Slot ring[2];
            union { Slot first; struct { double o[4]; State state[2]; } partial; };
            Nothing none;
            Mbarrier full[2], empty;
        };
        }
        __attribute__((used)) Shared layout;
        ";

    #[test]
    fn members_lie_where_the_compiler_puts_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a.cpp"), STRUCTS).unwrap();
        let mut command = Command::new(find::cxx());
        let flags = [
            "-std=c++17",
            "-gdwarf-4",
            "-gz=none",
            "-fPIC",
            "-shared",
            "-nostdlib",
            "-o",
        ];
        command.args(flags).args([path("a.so"), path("a.cpp")]);
        assert!(command.status().unwrap().success());
        let layout = &layouts(&std::fs::read(path("a.so")).unwrap()).unwrap()["layout"];
        let lines: Vec<String> = layout
            .buffers
            .iter()
            .map(|b| {
                let Buffer {
                    name,
                    element,
                    extents,
                    offset,
                    repeated,
                    bytes,
                    instead_of,
                } = b;
                let instead = instead_of.as_deref().unwrap_or("-");
                format!("{name} {element} {extents:?} {offset} {repeated:?} {bytes} {instead}")
            })
            .collect();
        assert_eq!(
            lines,
            [
                "max float [] 0 [] 4 -",
                "sum float [] 4 [] 4 -",
                "q short int [2, 5] 8 [] 20 -",
                "ring[2].k Tile<float, 8> [] 64 [(2, 128)] 64 -",
                "ring[2].v float [3] 128 [(2, 128)] 12 -",
                "first.k Tile<float, 8> [] 320 [] 64 -",
                "first.v float [3] 384 [] 12 -",
                "partial.o double [4] 320 [] 32 first",
                "partial.state State [2] 352 [] 16 first",
                "full Mbarrier [2] 456 [] 16 -",
                "empty Mbarrier [] 472 [] 8 -",
            ]
        );
        assert_eq!((layout.bytes, layout.padding()), (512, 232));
    }

    #[test]
    fn what_is_no_program_is_answered() {
        assert!(layouts(b"no program").is_err());
    }
}
