#include "launcher/os/system/elf_symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/symbol_name.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

constexpr std::size_t kMaxSymbolLength = 160;
constexpr std::size_t kMaxFrames = 32;

// Returns `count` records of one kind at `offset`; empty if they are not all in the file.
template <typename Record>
std::vector<Record> records_at(std::string_view file, std::uint64_t offset, std::uint64_t count) {
  if (offset > file.size() || count > (file.size() - offset) / sizeof(Record)) return {};
  std::vector<Record> records(count);
  if (count > 0) std::memcpy(records.data(), file.data() + offset, count * sizeof(Record));
  return records;
}

std::optional<Elf64_Ehdr> header_of(std::string_view file) {
  const auto headers = records_at<Elf64_Ehdr>(file, 0, 1);
  if (headers.empty() || std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      headers[0].e_ident[EI_CLASS] != ELFCLASS64 || headers[0].e_phentsize != sizeof(Elf64_Phdr) ||
      headers[0].e_shentsize != sizeof(Elf64_Shdr)) {
    return std::nullopt;
  }
  return headers[0];
}

// Returns the virtual address of the byte at `offset`.
std::optional<std::uint64_t> address_of(std::string_view file, const Elf64_Ehdr& header, std::uint64_t offset) {
  for (const Elf64_Phdr& part : records_at<Elf64_Phdr>(file, header.e_phoff, header.e_phnum)) {
    if (part.p_type == PT_LOAD && offset >= part.p_offset && offset - part.p_offset < part.p_filesz) {
      return offset - part.p_offset + part.p_vaddr;
    }
  }
  return std::nullopt;
}

// Returns the virtual address of the first byte of an executable mapping, which begins at a page.
std::optional<std::uint64_t> begin_of(std::string_view file, const Elf64_Ehdr& header, const MappedFile& mapped) {
  constexpr std::uint64_t kMaxPageBytes = 65536;
  for (const Elf64_Phdr& part : records_at<Elf64_Phdr>(file, header.e_phoff, header.e_phnum)) {
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const bool begins_in_page = mapped.offset <= part.p_offset && part.p_offset - mapped.offset < kMaxPageBytes;
    const bool is_within = mapped.offset >= part.p_offset && mapped.offset - part.p_offset < part.p_filesz;
    if (begins_in_page || is_within) return part.p_vaddr - part.p_offset + mapped.offset;
  }
  return std::nullopt;
}

std::string name_at(std::string_view file, const Elf64_Shdr& names, std::uint64_t index) {
  if (names.sh_offset > file.size() || index >= names.sh_size || names.sh_size > file.size() - names.sh_offset)
    return "";
  const std::string_view text = file.substr(names.sh_offset, names.sh_size).substr(index);
  return std::string(text.substr(0, std::min(text.find('\0'), text.size())));
}

// An address, and the function with the highest start address that is not above it.
struct Sought {
  std::uint64_t address = 0;
  Elf64_Sym symbol{};
  const Elf64_Shdr* names = nullptr;
};

// `sought` is sorted by address. A table may have half a million symbols, so one pass serves all addresses.
void search(std::string_view file, const Elf64_Shdr& table, const Elf64_Shdr& names, std::vector<Sought>& sought) {
  const std::uint64_t count = table.sh_size / sizeof(Elf64_Sym);
  if (table.sh_offset > file.size() || count > (file.size() - table.sh_offset) / sizeof(Elf64_Sym)) return;
  for (std::uint64_t i = 0; i < count; ++i) {
    Elf64_Sym symbol{};
    std::memcpy(&symbol, file.data() + table.sh_offset + i * sizeof symbol, sizeof symbol);
    const bool is_function =
        ELF64_ST_TYPE(symbol.st_info) == STT_FUNC || ELF64_ST_TYPE(symbol.st_info) == STT_GNU_IFUNC;
    if (!is_function || symbol.st_shndx == SHN_UNDEF) continue;
    auto one = std::lower_bound(sought.begin(), sought.end(), symbol.st_value,
                                [](const Sought& each, std::uint64_t value) { return each.address < value; });
    for (; one != sought.end(); ++one) {
      if (symbol.st_size != 0 && one->address - symbol.st_value >= symbol.st_size) break;
      if (one->names == nullptr || symbol.st_value > one->symbol.st_value) {
        one->symbol = symbol;
        one->names = &names;
      }
    }
  }
}

std::uint64_t hexadecimal(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

// A regular file's bytes.
class FileBytes {
 public:
  explicit FileBytes(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return;
    void* memory = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (memory != MAP_FAILED) bytes_ = {static_cast<const char*>(memory), static_cast<std::size_t>(status.st_size)};
  }
  ~FileBytes() {
    if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;
};

std::map<std::uint64_t, std::string> functions_in(const std::string& path, const std::set<std::uint64_t>& offsets) {
  const FileBytes file(path);
  auto names = functions_at(file.bytes(), offsets);
  for (auto& [offset, name] : names) name = printable(ddp::detail::symbol_name(name, kMaxSymbolLength));
  return names;
}

std::string hex_text(std::uint64_t value) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(value));
  return text.data();
}

}  // namespace

std::map<std::uint64_t, std::string> functions_at(std::string_view file, const std::set<std::uint64_t>& offsets) {
  const auto header = header_of(file);
  if (!header) return {};
  std::vector<Sought> sought;
  std::multimap<std::uint64_t, std::uint64_t> offsets_at;  // by address
  for (const std::uint64_t offset : offsets) {
    const auto address = address_of(file, *header, offset);
    if (!address) continue;
    if (!offsets_at.contains(*address)) sought.push_back({.address = *address});
    offsets_at.emplace(*address, offset);
  }
  std::sort(sought.begin(), sought.end(), [](const Sought& a, const Sought& b) { return a.address < b.address; });
  const auto sections = records_at<Elf64_Shdr>(file, header->e_shoff, header->e_shnum);
  for (const Elf64_Shdr& section : sections) {
    const bool has_symbols = section.sh_type == SHT_SYMTAB || section.sh_type == SHT_DYNSYM;
    if (has_symbols && section.sh_link < sections.size()) search(file, section, sections[section.sh_link], sought);
  }
  std::map<std::uint64_t, std::string> found;
  for (const Sought& one : sought) {
    const std::string name = one.names == nullptr ? "" : name_at(file, *one.names, one.symbol.st_name);
    const auto [begin, end] = offsets_at.equal_range(one.address);
    for (auto offset = begin; offset != end && !name.empty(); ++offset) found[offset->second] = name;
  }
  return found;
}

std::optional<std::uint64_t> variable_in(std::string_view file, std::string_view name, const MappedFile& mapped) {
  const auto header = header_of(file);
  const auto begin = header ? begin_of(file, *header, mapped) : std::nullopt;
  if (!begin) return std::nullopt;
  const auto sections = records_at<Elf64_Shdr>(file, header->e_shoff, header->e_shnum);
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections.size()) continue;
    for (const Elf64_Sym& symbol :
         records_at<Elf64_Sym>(file, section.sh_offset, section.sh_size / sizeof(Elf64_Sym))) {
      const bool is_variable = ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_shndx != SHN_UNDEF;
      if (!is_variable || name_at(file, sections[section.sh_link], symbol.st_name) != name) continue;
      return symbol.st_value - *begin + mapped.begin;
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> variable_at(const std::string& path, std::string_view name, const MappedFile& mapped) {
  const FileBytes file(path);
  return variable_in(file.bytes(), name, mapped);
}

std::vector<MappedFile> executable_files(std::string_view maps) {
  // begin-end rwxp offset device inode      path
  std::vector<MappedFile> files;
  while (!maps.empty()) {
    const std::string_view line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(line.size() + 1, maps.size()));
    const std::size_t dash = line.find('-');
    const std::size_t space = line.find(' ');
    const std::size_t path = line.find('/');
    if (dash == std::string_view::npos || space == std::string_view::npos || dash > space ||
        path == std::string_view::npos || line.size() < space + 6 || line[space + 3] != 'x') {
      continue;
    }
    files.push_back({.begin = hexadecimal(line.substr(0, dash)),
                     .end = hexadecimal(line.substr(dash + 1)),
                     .offset = hexadecimal(line.substr(space + 6)),
                     .path = std::string(line.substr(path))});
  }
  return files;
}

std::string StackFrame::text() const {
  if (file.empty()) return hex_text(offset);
  const std::string place = "(" + file + "+" + hex_text(offset) + ")";
  return function.empty() ? place : function + " " + place;
}

std::optional<SymbolNames::Place> SymbolNames::place_of(int pid, const std::vector<std::uint64_t>& addresses,
                                                        std::size_t i) {
  auto known = files_.find(pid);
  if (known == files_.end()) {
    std::ifstream file;
    if (!proc_.empty()) file.open(proc_ + "/" + std::to_string(pid) + "/maps", std::ios::binary);
    known = files_.emplace(pid, executable_files(std::string(std::istreambuf_iterator<char>(file), {}))).first;
  }
  // Except for the innermost, these are return addresses, which may already be in the next function. So 1 is
  // subtracted.
  const std::uint64_t address = addresses[i] - (i > 0 ? 1 : 0);
  const auto file = std::find_if(known->second.begin(), known->second.end(),
                                 [&](const auto& each) { return address >= each.begin && address < each.end; });
  if (file == known->second.end()) return std::nullopt;
  return Place{file->path, address - file->begin + file->offset};
}

void SymbolNames::resolve(const std::vector<std::pair<int, std::vector<std::uint64_t>>>& stacks) {
  std::map<std::string, std::pair<int, std::set<std::uint64_t>>>
      wanted;  // by file: a process that has mapped it, and the offsets
  for (const auto& [pid, addresses] : stacks) {
    for (std::size_t i = 0; i < std::min(addresses.size(), kMaxFrames); ++i) {
      const auto place = place_of(pid, addresses, i);
      if (!place || functions_.contains(*place)) continue;
      const auto entry = wanted.try_emplace(place->first, pid, std::set<std::uint64_t>()).first;
      entry->second.second.insert(place->second);
    }
  }
  for (const auto& [path, what] : wanted) {
    const auto& [pid, offsets] = what;
    // The path is as the process sees it, and the process may be in a container.
    auto found = functions_in(proc_ + "/" + std::to_string(pid) + "/root" + path, offsets);
    for (const std::uint64_t offset : offsets) functions_[{path, offset}] = std::move(found[offset]);
  }
}

std::vector<StackFrame> SymbolNames::frames(int pid, const std::vector<std::uint64_t>& addresses) {
  resolve({{pid, addresses}});
  std::vector<StackFrame> frames;
  for (std::size_t i = 0; i < std::min(addresses.size(), kMaxFrames); ++i) {
    const auto place = place_of(pid, addresses, i);
    if (!place) {
      frames.push_back({.offset = addresses[i] - (i > 0 ? 1 : 0)});
      continue;
    }
    const auto& [path, offset] = *place;
    frames.push_back(
        {.function = functions_[*place], .file = printable(path.substr(path.rfind('/') + 1)), .offset = offset});
  }
  return frames;
}

}  // namespace launcher
