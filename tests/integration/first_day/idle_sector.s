# The boot sector of a guest that is there: it waits with the CPU halted, works a little at each tick of its clock (18 a
# second), and powers itself off when its power button is pressed. For QEMU's machines `pc` and `q35`.

        .set    PM_STATUS, 0x600        # ACPI where SeaBIOS puts it: PM1 status, enable at +2, control at +4
        .set    PM_BUTTON, 0x100        # power button, in status and enable
        .set    PM_OFF, 0x2000          # SLP_EN with the sleep type of S5, which is 0
        .set    TURNS, 200000           # of a loop, at each tick

        .code16
        .globl  _start
_start: movw    $PM_STATUS + 2, %dx     # let the power button show in the status
        movw    $PM_BUTTON, %ax
        outw    %ax, %dx
tick:   sti
        hlt
        movl    $TURNS, %ecx
1:      decl    %ecx
        jnz     1b
        movw    $PM_STATUS, %dx
        inw     %dx, %ax
        testw   $PM_BUTTON, %ax
        jz      tick
        movw    $PM_STATUS + 4, %dx
        movw    $PM_OFF, %ax
        outw    %ax, %dx
2:      hlt
        jmp     2b
        .org    510
        .word   0xaa55
