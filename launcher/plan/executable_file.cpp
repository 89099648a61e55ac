#include "launcher/plan/executable_file.h"

#include <elf.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

namespace launcher {
namespace {

constexpr std::size_t kHead = 4096;

#if defined(__x86_64__)
constexpr int kNativeMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kNativeMachine = EM_AARCH64;
#else
constexpr int kNativeMachine = EM_NONE;
#endif

std::string beginning_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string bytes(kHead, '\0');
  stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(stream.gcount()));
  return bytes;
}

// Examines the interpreter in a line such as "#! /usr/bin/env python3": here "/usr/bin/env".
std::string why_not_interpreted(std::string_view line, const std::string& file) {
  if (line.ends_with('\r')) {
    return "it has the line endings of Windows: the carriage return in its first line makes the name of the "
           "interpreter "
           "wrong. To convert the file: sed -i 's/\\r$//' " +
           file;
  }
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t", 2)));
  const std::string interpreter(line.substr(0, line.find_first_of(" \t")));
  if (!interpreter.starts_with('/') || ::access(interpreter.c_str(), F_OK) == 0) return "";
  return "its first line names the interpreter " + interpreter +
         ", which is not there; install it, or write its path into the first line";
}

std::string machine_name(int machine) {
  constexpr std::array kNames = std::to_array<std::pair<int, const char*>>({{EM_X86_64, "x86-64"},
                                                                            {EM_AARCH64, "aarch64"},
                                                                            {EM_386, "32-bit x86"},
                                                                            {EM_ARM, "32-bit ARM"},
                                                                            {EM_PPC64, "ppc64"},
                                                                            {EM_RISCV, "RISC-V"},
                                                                            {EM_S390, "s390"}});
  for (const auto& [number, name] : kNames) {
    if (number == machine) return name;
  }
  return "machine number " + std::to_string(machine);
}

// Returns the loader that a 64-bit ELF file names at its beginning.
std::optional<std::string> loader_of(std::string_view bytes) {
  Elf64_Ehdr header{};
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return std::nullopt;
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    const std::size_t at = header.e_phoff + i * sizeof part;
    if (at > bytes.size() || bytes.size() - at < sizeof part) return std::nullopt;
    std::memcpy(&part, bytes.data() + at, sizeof part);
    if (part.p_type != PT_INTERP) continue;
    if (part.p_offset > bytes.size() || bytes.size() - part.p_offset < part.p_filesz) return std::nullopt;
    const std::string_view name = bytes.substr(part.p_offset, part.p_filesz);
    return std::string(name.substr(0, name.find('\0')));
  }
  return std::nullopt;
}

std::string why_not_loaded(std::string_view bytes) {
  const bool is_64_bit =
      bytes.size() > sizeof(Elf64_Ehdr) && bytes[EI_CLASS] == ELFCLASS64 && bytes[EI_DATA] == ELFDATA2LSB;
  if (!is_64_bit) return "";
  Elf64_Ehdr header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (kNativeMachine != EM_NONE && header.e_machine != kNativeMachine) {
    // The kernel may have an emulator for the file (binfmt_misc), so this is called only after the kernel has refused
    // it.
    return "it was built for " + machine_name(header.e_machine) + ", and this machine is " +
           machine_name(kNativeMachine) + "; build it here";
  }
  if (header.e_type == ET_REL) return "it is an object file (.o), which has to be linked first";
  const auto loader = loader_of(bytes);
  if (!loader || !loader->starts_with('/') || ::access(loader->c_str(), F_OK) == 0) return "";
  return "it needs the loader " + *loader + ", which is not there: it was built for another system; build it here";
}

}  // namespace

std::string why_not_executed(const std::string& file) {
  const std::string bytes = beginning_of(file);
  if (bytes.empty()) return ::access(file.c_str(), R_OK) == 0 ? "it is empty" : "";
  if (bytes.starts_with("#!")) return why_not_interpreted(std::string_view(bytes).substr(0, bytes.find('\n')), file);
  if (bytes.starts_with(ELFMAG)) return why_not_loaded(bytes);
  return "";
}

std::string why_no_permission(const std::string& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return std::strerror(errno);
  struct statvfs system {};
  if (::statvfs(file.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0) {
    return "its file system is mounted with noexec; copy it to another one, or mount this one with exec";
  }
  if ((status.st_mode & 0111) == 0) return "Permission denied (it is not marked executable: chmod +x " + file + ")";
  return "Permission denied (its owner may execute it, and you are another user)";
}

std::string why_no_program(std::string_view file) {
  constexpr std::array<std::string_view, 5> kSources = {".c", ".cc", ".cpp", ".cxx", ".cu"};
  const std::string_view ending = file.substr(std::min(file.rfind('.'), file.size()));
  if (std::find(kSources.begin(), kSources.end(), ending) != kSources.end())
    return "it is source code: compile it, and give ddprun the program that the compiler writes";
  if (ending == ".ipynb") return "it is a notebook: jupyter nbconvert --to script " + std::string(file);
  return "";
}

}  // namespace launcher
