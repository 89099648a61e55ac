#include "launcher/plan/executable_file.h"

#include <elf.h>
#include <sys/stat.h>

#include <cstring>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;

class ExecutableFileTest {
 protected:
  std::string file(const std::string& bytes) const {
    ddp::test::write_file(folder_ / "file", bytes);
    return folder_ / "file";
  }
  // An ELF file for `machine` that names `loader`.
  static std::string program(int machine, const std::string& loader, int type = ET_DYN) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_machine = static_cast<Elf64_Half>(machine);
    header.e_type = static_cast<Elf64_Half>(type);
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    Elf64_Phdr part{};
    part.p_type = PT_INTERP;
    part.p_offset = sizeof header + sizeof part;
    part.p_filesz = loader.size() + 1;
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char*>(&part), sizeof part);
    return bytes + loader + std::string(1, '\0');
  }
  ddp::test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(ExecutableFileTest, "ExecutableFile: a carriage return behind the interpreter is said") {
  CHECK_THAT(why_not_executed(file("#!/bin/sh\r\necho\r\n")),
             ContainsSubstring("carriage return") && ContainsSubstring("sed -i"));
  CHECK_THAT(why_not_executed(file("#!/usr/bin/env python3\r\n")), ContainsSubstring("carriage return"));
  CHECK(why_not_executed(file("#!/bin/sh\necho\r\n")) == "");
}

TEST_CASE_METHOD(ExecutableFileTest, "ExecutableFile: a missing interpreter is named") {
  CHECK_THAT(why_not_executed(file("#!/no/such/thing -x\n")),
             ContainsSubstring("the interpreter /no/such/thing, which is not there"));
  CHECK_THAT(why_not_executed(file("#!  /no/such/thing")), ContainsSubstring("/no/such/thing,"));
  CHECK(why_not_executed(file("#!/bin/sh\n")) == "");
  CHECK(why_not_executed(file("#!\n")) == "");
  CHECK(why_not_executed(file("text\n")) == "");
}

TEST_CASE_METHOD(ExecutableFileTest, "ExecutableFile: binaries for other machines and systems are told apart") {
#if defined(__x86_64__)
  constexpr int kOwn = EM_X86_64;
  constexpr int kOther = EM_AARCH64;
  CHECK_THAT(why_not_executed(file(program(kOther, "/lib/ld.so"))),
             ContainsSubstring("built for aarch64, and this machine is x86-64"));
  CHECK_THAT(why_not_executed(file(program(kOwn, "/lib/ld-no-such.so"))),
             ContainsSubstring("the loader /lib/ld-no-such.so, which is not there"));
  CHECK_THAT(why_not_executed(file(program(kOwn, "", ET_REL))), ContainsSubstring("object file"));
  CHECK(why_not_executed(file(program(kOwn, "/proc/self/exe"))) == "");
#endif
  CHECK(why_not_executed("/proc/self/exe") == "");
  CHECK(why_not_executed(file("")) == "it is empty");
}

TEST_CASE_METHOD(ExecutableFileTest, "ExecutableFile: damaged binaries are read within their bounds") {
  const std::string whole = program(EM_X86_64, "/lib/ld-no-such.so");
  const auto is_known = [](const std::string& why) {
    return why.empty() || why.starts_with("it was built for ") || why.starts_with("it is an object file") ||
           why.starts_with("it needs the loader /");
  };
  for (std::size_t length = 1; length < whole.size(); ++length) {
    const std::string why = why_not_executed(file(whole.substr(0, length)));
    CHECK(is_known(why));
    CHECK_THAT(why, !ContainsSubstring("ld-no-such.so"));  // its end is missing
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = '\xff';
    CHECK(is_known(why_not_executed(file(damaged))));
  }
}

TEST_CASE_METHOD(ExecutableFileTest, "ExecutableFile: a file without the mark is told from one of others") {
  const std::string path = file("x");
  ::chmod(path.c_str(), 0644);
  CHECK_THAT(why_no_permission(path), ContainsSubstring("chmod +x " + path));
  ::chmod(path.c_str(), 0700);
  CHECK_THAT(why_no_permission(path), ContainsSubstring("another user"));
}

TEST_CASE("ExecutableFile: a source or a notebook is not a program") {
  CHECK_THAT(why_no_program("./train.cpp"), ContainsSubstring("compile it"));
  CHECK_THAT(why_no_program("train.ipynb"), ContainsSubstring("nbconvert --to script train.ipynb"));
  CHECK(why_no_program("./train") == "");
  CHECK(why_no_program("train.py") == "");
}

}  // namespace
}  // namespace launcher
