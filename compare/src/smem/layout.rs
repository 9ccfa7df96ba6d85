//! What lies where in a struct, read from the debug information that the C++ compiler writes of it.

use addr2line::gimli::{
    self, AttributeValue, DebuggingInformationEntry as Entry, Dwarf, EndianSlice, LittleEndian,
    SectionId, Unit, UnitOffset, constants as dw,
};
use object::{Object, ObjectSection};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A member of a struct, or of a struct within it.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// `ring`, `ring.k`.
    pub name: String,
    /// The type of one element: `half`, `Mbarrier`, `BoxTile<F16, 64, 128>`.
    pub element: String,
    /// The array's extents; none for a single value.
    pub extents: Vec<u64>,
    /// In bytes from the start; within an array of structs, of the first.
    pub offset: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub bytes: u64,
    /// A struct comes before its members, and members of a union have one offset.
    pub members: Vec<Member>,
}

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
            let mut members = Vec::new();
            types.members(&of.entry, ("", 0), &mut members)?;
            let bytes = of.bytes;
            layouts.insert(name, Layout { bytes, members });
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
        // Kernels have words for numbers.
        if entry.tag() != dw::DW_TAG_base_type || name.is_empty() {
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

    /// Adds the members of a struct or union that has this name and offset.
    fn members(
        &self,
        of: &Entry<Slice<'a>>,
        (outer, start): (&str, u64),
        members: &mut Vec<Member>,
    ) -> Result<(), gimli::Error> {
        for (own, offset, found) in self.fields(of)? {
            let offset = start + offset;
            let fields = self.fields(&found.entry)?;
            let is_number = |of: &Type<'a>| of.entry.tag() == dw::DW_TAG_base_type;
            let is_array = |of: &Type<'a>| !of.extents.is_empty();
            // A tile is one array, a pair of numbers (`RowState`) one value.
            let is_divided = fields.iter().any(|(.., of)| !is_number(of))
                || fields.len() > 1 && fields.iter().any(|(.., of)| is_array(of));
            // What has no name has its members named as the struct's own.
            if own.is_empty() {
                self.members(&found.entry, (outer, offset), members)?;
                continue;
            }
            let name = match outer {
                "" => own,
                outer => format!("{outer}.{own}"),
            };
            let count: u64 = found.extents.iter().product();
            members.push(Member {
                name: name.clone(),
                element: found.name,
                extents: found.extents,
                offset,
                bytes: found.bytes * count,
            });
            if is_divided {
                self.members(&found.entry, (&name, offset), members)?;
            }
        }
        Ok(())
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
            .members
            .iter()
            .map(|member| {
                let Member {
                    name,
                    element,
                    extents,
                    offset,
                    bytes,
                } = member;
                format!("{name} {element} {extents:?} {offset} {bytes}")
            })
            .collect();
        assert_eq!(
            lines,
            [
                "max float [] 0 4",
                "sum float [] 4 4",
                "q short int [2, 5] 8 20",
                "ring Slot [2] 64 256",
                "ring.k Tile<float, 8> [] 64 64",
                "ring.v float [3] 128 12",
                "first Slot [] 320 128",
                "first.k Tile<float, 8> [] 320 64",
                "first.v float [3] 384 12",
                "partial  [] 320 48",
                "partial.o double [4] 320 32",
                "partial.state State [2] 352 16",
                "none Nothing [] 448 1",
                "full Mbarrier [2] 456 16",
                "empty Mbarrier [] 472 8",
            ]
        );
        assert_eq!(layout.bytes, 512);
    }

    #[test]
    fn what_is_no_program_is_answered() {
        assert!(layouts(b"no program").is_err());
    }
}
