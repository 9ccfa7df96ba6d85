// Asks for the mission and for a head size that there is not; prints the code and the message of the first.
#include "attention_ladder.h"
#include <stdio.h>
#include <string.h>

static AttentionLadderTensor tensor(void) {
    AttentionLadderTensor t = {NULL, NULL, 8 * 512 * 64, 512 * 64, 64};
    return t;
}

int main(void) {
    AttentionLadderCall call;
    memset(&call, 0, sizeof call);
    call.q = call.k = call.v = call.o = tensor();
    call.dtype = ATTENTION_LADDER_F16;
    call.mask = ATTENTION_LADDER_CAUSAL;
    call.batch = 1;
    call.heads_q = call.heads_kv = 8;
    call.seq_q = call.seq_kv = 512;
    call.head_dim = 96;
    if (strlen(attention_ladder_version()) == 0 || strlen(attention_ladder_last_error()) != 0) return 10;
    if (attention_ladder_query(&call, 0) != ATTENTION_LADDER_UNSUPPORTED) return 11;
    if (strstr(attention_ladder_last_error(), "head_dim = 96 is not supported") == NULL) return 12;
    if (attention_ladder_query(NULL, 0) != ATTENTION_LADDER_INVALID) return 13;
    if (attention_ladder_launch(NULL, 0, NULL, 0, NULL) != ATTENTION_LADDER_INVALID) return 14;
    call.head_dim = 64;
    size_t bytes = 7;
    int32_t code = attention_ladder_workspace(&call, 0, &bytes);
    const char *variant = attention_ladder_variant(&call, 0);
    if (code == ATTENTION_LADDER_OK ? variant == NULL || bytes != 0 : variant != NULL) return 15;
    printf("%d %s\n", (int)code, code == ATTENTION_LADDER_OK ? variant : attention_ladder_last_error());
    return 0;
}
