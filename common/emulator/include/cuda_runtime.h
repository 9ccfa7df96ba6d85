// Everything that a kernel needs of it is in the prelude.
#pragma once
#include <emulator/prelude.h>
